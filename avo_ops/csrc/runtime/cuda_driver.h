// The CUDA driver API, as far as this library uses it. These are our own declarations of its public binary
// interface (CUDA 12.0 and later), so that no CUDA header is needed; the functions come from libcuda.so.1.
#pragma once

#include <cstddef>
#include <cstdint>

namespace avo::cuda {

using Result = int; // CUresult; 0 is success
using Device = int;
using Context = struct ContextOpaque *;
using Stream = struct StreamOpaque *;
using Library = struct LibraryOpaque *;
using Kernel = struct KernelOpaque *; // CUkernel, which a launch takes in place of a CUfunction

enum DeviceAttribute : int { kMultiprocessorCount = 16, kCapabilityMajor = 75, kCapabilityMinor = 76 };
enum FunctionAttribute : int { kPtxVersion = 5, kMaxDynamicSharedSize = 8, kNonPortableClusterSize = 14 };

struct LaunchAttribute { // CUlaunchAttribute
  int id;
  char pad[4];
  union {
    char bytes[64];
    struct {
      unsigned x, y, z;
    } cluster;
    int overlap;
  } value;
};
// A kernel with kProgrammaticSerialization may begin before the one before it in the stream has ended.
inline constexpr int kClusterDimension = 4, kProgrammaticSerialization = 6;

struct LaunchConfig { // CUlaunchConfig
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  Stream stream;
  LaunchAttribute *attributes;
  unsigned attribute_count;
};

static_assert(sizeof(LaunchAttribute) == 72 && offsetof(LaunchAttribute, value) == 8);
static_assert(sizeof(LaunchConfig) == 56 && offsetof(LaunchConfig, stream) == 32);

// A relaxed thread does not disturb what is captured on others, whatever it calls.
enum CaptureMode : int { kCaptureGlobal = 0, kCaptureThreadLocal = 1, kCaptureRelaxed = 2 };

struct Driver {
  Result (*cuInit)(unsigned);
  Result (*cuDriverGetVersion)(int *);
  Result (*cuDeviceGet)(Device *, int);
  Result (*cuDeviceGetAttribute)(int *, DeviceAttribute, Device);
  Result (*cuDevicePrimaryCtxRetain)(Context *, Device);
  Result (*cuCtxGetCurrent)(Context *);
  Result (*cuCtxSetCurrent)(Context);
  Result (*cuLibraryLoadData)(Library *, const void *, int *, void **, unsigned, int *, void **, unsigned);
  Result (*cuLibraryGetKernel)(Kernel *, Library, const char *);
  Result (*cuKernelGetAttribute)(int *, FunctionAttribute, Kernel, Device);
  Result (*cuKernelSetAttribute)(FunctionAttribute, int, Kernel, Device);
  Result (*cuLaunchKernelEx)(const LaunchConfig *, Kernel, void **, void **);
  Result (*cuGetErrorString)(Result, const char **);
  Result (*cuThreadExchangeStreamCaptureMode)(CaptureMode *);
};

// The driver, initialised; null when this machine has none that can be used.
const Driver *driver();

// "invalid argument", say.
const char *error_text(Result result);

} // namespace avo::cuda

// CUDA devices and the kernels that are loaded on them.
#pragma once

#include <stdexcept>

#include "cuda_driver.h"
#include "plan.h"

namespace avo {

// 1: the path of a cubin of (unit, arch) is in `text`; 0: there is none; -1: there may be one later, but this call must
// fail with the message in `text`. Arch 0: of a library for the emulator. Called without any lock held, and from any
// thread, also twice at once for the same unit.
using KernelResolver = int (*)(const char *unit, int arch, char *text, int text_size);
using WarningCallback = void (*)(const char *message);

// A kernel that is not there may be compiled later, but not in this call.
struct NotNow : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void set_kernel_resolver(KernelResolver resolver);
// The path that it gives, or nothing. Throws NotNow with its message.
std::string resolve_kernels(const std::string &unit, int arch);
void set_warning_callback(WarningCallback callback);
void warn(const std::string &message);

// Units that could not be loaded are asked for again.
void forget_failed_kernels();

// The device as a target; arch 0 when it cannot be used (no driver): then no kernel applies.
Target cuda_target(int device);

// A kernel of a family on a device, ready to be launched with the variant's shared memory and cluster; null,
// after one warning for the family, when it cannot be had. Throws NotNow; but for several row strides it is null then,
// without a warning, for copies of the operands do.
cuda::Kernel cuda_kernel(const Family &family, const Variant &variant, const Target &target);

// Whether the kernel, which has been loaded, waits for the one before it by itself, so that it may be launched before
// that has ended: the finish kernels do.
bool may_overlap(const Variant &variant, const Target &target);

// torch's current stream of the device; false when this torch has no CUDA.
bool current_stream(int device, cuda::Stream *stream);

} // namespace avo

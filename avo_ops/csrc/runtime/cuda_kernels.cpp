// Devices, cubins and kernels. The fast path reads one atomic of the variant; what is asked of Python (the
// resolver) happens outside the lock, because Python's callback needs the interpreter's own lock, which may
// be held by a thread that waits for ours.
#include "cuda_kernels.h"

#include <cstdio>
#include <dlfcn.h>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include <torch/csrc/stable/c/shim.h>

#include "message.h"

namespace avo {
namespace {

constexpr int kMaxDevices = 64;

struct DeviceRecord {
  std::atomic<bool> ready{false};
  cuda::Device handle = 0;
  int arch = 0, sms = 0;
};

struct Kernels {
  std::mutex mutex;
  std::map<std::pair<std::string, int>, cuda::Library> libraries;
  std::set<std::pair<std::string, int>> failed;
  std::set<std::string> warned;
  std::atomic<int> archs[kMaxArchs] = {};
  DeviceRecord devices[kMaxDevices];
  std::atomic<KernelResolver> resolver{nullptr};
  std::atomic<WarningCallback> warning{nullptr};
};

Kernels &kernels() {
  static auto *kernels = new Kernels; // never destroyed: calls may come while the process ends
  return *kernels;
}

// A small index for the arch, the same for all variants; -1 when the machine has too many different ones.
int arch_slot(int arch) {
  for (int i = 0; i < kMaxArchs; ++i) {
    int found = kernels().archs[i].load(std::memory_order_acquire);
    if (found == 0 && kernels().archs[i].compare_exchange_strong(found, arch)) return i;
    if (found == arch) return i;
  }
  return -1;
}

const DeviceRecord *device_record(int index) {
  if (index < 0 || index >= kMaxDevices) return nullptr;
  DeviceRecord &record = kernels().devices[index];
  if (record.ready.load(std::memory_order_acquire)) return &record;
  const cuda::Driver *driver = cuda::driver();
  if (!driver) return nullptr;
  std::lock_guard<std::mutex> lock(kernels().mutex);
  int major = 0, minor = 0;
  if (driver->cuDeviceGet(&record.handle, index) ||
      driver->cuDeviceGetAttribute(&major, cuda::kCapabilityMajor, record.handle) ||
      driver->cuDeviceGetAttribute(&minor, cuda::kCapabilityMinor, record.handle) ||
      driver->cuDeviceGetAttribute(&record.sms, cuda::kMultiprocessorCount, record.handle))
    return nullptr;
  record.arch = major * 10 + minor;
  record.ready.store(true, std::memory_order_release);
  return &record;
}

bool read_file(const std::string &path, std::string &bytes) {
  std::ifstream file(path, std::ios::binary);
  bytes.assign(std::istreambuf_iterator<char>(file), {});
  return file.good() || file.eof() ? !bytes.empty() : false;
}

// Loads the cubin of a unit; the reason of a failure in `why`.
cuda::Library load_library(const std::string &unit, int arch, std::string &why) {
  const std::string path = resolve_kernels(unit, arch);
  if (path.empty()) {
    why = join("there is no cubin for sm_", arch);
    return nullptr;
  }
  std::string bytes;
  if (!read_file(path, bytes)) {
    why = join("cannot read ", path);
    return nullptr;
  }
  std::lock_guard<std::mutex> lock(kernels().mutex);
  cuda::Library &library = kernels().libraries[{unit, arch}];
  if (library) return library; // another thread was faster
  if (cuda::Result error =
          cuda::driver()->cuLibraryLoadData(&library, bytes.data(), nullptr, nullptr, 0, nullptr, nullptr, 0)) {
    library = nullptr;
    why = join("the driver does not load ", path, ": ", cuda::error_text(error));
  }
  return library;
}

cuda::Library find_library(const Variant &variant, int arch) {
  const std::string &unit = variant.unit;
  {
    std::lock_guard<std::mutex> lock(kernels().mutex);
    if (kernels().failed.count({unit, arch})) return nullptr;
    auto found = kernels().libraries.find({unit, arch});
    if (found != kernels().libraries.end() && found->second) return found->second;
  }
  std::string why;
  cuda::Library library = nullptr;
  try {
    library = load_library(unit, arch, why);
  } catch (const NotNow &) { // after freeze(), or while a graph is captured: a copy does it, this time
    if (!variant.strided) throw;
    return nullptr;
  }
  if (library) return library;
  bool first = false;
  {
    std::lock_guard<std::mutex> lock(kernels().mutex);
    kernels().failed.insert({unit, arch});
    first = kernels().warned.insert(unit).second;
  }
  if (first)
    warn(join("avo_ops: no CUDA kernel of ", unit, ", so ",
              variant.strided ? "its operands are copied first: " : "plain torch operations run instead: ", why));
  return nullptr;
}

// Whether the kernel has the instruction by which a finish kernel waits for the one before it: compiled for sm_90 or
// later. What was translated from the PTX of an older arch has none.
bool has_wait(cuda::Kernel kernel, int device) {
  int version = 0;
  return !cuda::driver()->cuKernelGetAttribute(&version, cuda::kPtxVersion, kernel, kernels().devices[device].handle) &&
         version >= 90;
}

cuda::Kernel load_kernel(const Variant &variant, int arch) {
  cuda::Library library = find_library(variant, arch);
  if (!library) return nullptr;
  cuda::Kernel kernel = nullptr;
  cuda::Result error = cuda::driver()->cuLibraryGetKernel(&kernel, library, variant.symbol.c_str());
  if (!error) return kernel;
  bool first = false;
  {
    std::lock_guard<std::mutex> lock(kernels().mutex);
    first = kernels().warned.insert(variant.unit).second;
  }
  if (first)
    warn(join("avo_ops: the cubin of ", variant.unit, " for sm_", arch, " has no kernel ", variant.symbol, " (",
              cuda::error_text(error), "), so plain torch operations run instead"));
  return nullptr;
}

// Shared memory above 48 KB and clusters of more than 8 blocks have to be allowed, once on each device.
void prepare(cuda::Kernel kernel, const Variant &variant, int device) {
  if (variant.smem <= 48 * 1024 && variant.cluster <= 8) return;
  uint64_t bit = uint64_t{1} << device;
  if (variant.prepared_devices.load(std::memory_order_acquire) & bit) return;
  const cuda::Driver &driver = *cuda::driver();
  cuda::Device handle = kernels().devices[device].handle;
  cuda::Result error = 0;
  if (variant.smem > 48 * 1024)
    error = driver.cuKernelSetAttribute(cuda::kMaxDynamicSharedSize, variant.smem, kernel, handle);
  if (!error && variant.cluster > 8)
    error = driver.cuKernelSetAttribute(cuda::kNonPortableClusterSize, 1, kernel, handle);
  if (error)
    fail("CUDA kernel ", variant.symbol, ": ", variant.smem, " bytes of shared memory and clusters of ",
         variant.cluster, " are not possible on cuda:", device, ": ", cuda::error_text(error));
  variant.prepared_devices.fetch_or(bit, std::memory_order_release);
}

} // namespace

void set_kernel_resolver(KernelResolver resolver) { kernels().resolver.store(resolver); }

std::string resolve_kernels(const std::string &unit, int arch) {
  KernelResolver resolver = kernels().resolver.load();
  char text[4096] = "";
  const int found = resolver ? resolver(unit.c_str(), arch, text, sizeof text) : 0;
  if (found < 0) throw NotNow(text);
  return found ? text : "";
}

void set_warning_callback(WarningCallback callback) { kernels().warning.store(callback); }

void warn(const std::string &message) {
  if (WarningCallback callback = kernels().warning.load()) callback(message.c_str());
  else std::fprintf(stderr, "%s\n", message.c_str());
}

void forget_failed_kernels() {
  std::lock_guard<std::mutex> lock(kernels().mutex);
  kernels().failed.clear();
  kernels().warned.clear();
}

Target cuda_target(int device) {
  Target target;
  target.cuda = true;
  target.device = device;
  if (const DeviceRecord *record = device_record(device)) {
    target.arch = record->arch;
    target.sms = record->sms;
  }
  return target;
}

cuda::Kernel cuda_kernel(const Family &family, const Variant &variant, const Target &target) {
  int slot = arch_slot(target.arch);
  if (slot < 0) return nullptr;
  void *kernel = variant.kernel[slot].load(std::memory_order_acquire);
  if (!kernel) {
    kernel = load_kernel(variant, target.arch);
    if (!kernel) return nullptr;
    if (family.kind == FamilyClass::Finish)
      variant.waits[slot].store(has_wait(static_cast<cuda::Kernel>(kernel), target.device), std::memory_order_relaxed);
    variant.kernel[slot].store(kernel, std::memory_order_release);
  }
  prepare(static_cast<cuda::Kernel>(kernel), variant, target.device);
  return static_cast<cuda::Kernel>(kernel);
}

bool may_overlap(const Variant &variant, const Target &target) {
  int slot = arch_slot(target.arch);
  return slot >= 0 && variant.waits[slot].load(std::memory_order_relaxed);
}

bool current_stream(int device, cuda::Stream *stream) {
  using Function = AOTITorchError (*)(int32_t, void **);
  static const Function function = [] {
    void *library = dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD);
    return library ? reinterpret_cast<Function>(dlsym(library, "aoti_torch_get_current_cuda_stream")) : nullptr;
  }();
  void *found = nullptr;
  if (!function || function(device, &found)) return false;
  *stream = static_cast<cuda::Stream>(found);
  return true;
}

} // namespace avo

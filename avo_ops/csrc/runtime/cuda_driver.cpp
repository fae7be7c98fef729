// Binding of the driver API at run time.
#include "cuda_driver.h"

#include <dlfcn.h>
#include <type_traits>

namespace avo::cuda {
namespace {

bool bind(Driver &driver) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) return false;
  bool complete = true;
  auto take = [&](auto &function, const char *name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    complete = complete && function;
  };
  take(driver.cuInit, "cuInit");
  take(driver.cuDriverGetVersion, "cuDriverGetVersion");
  take(driver.cuDeviceGet, "cuDeviceGet");
  take(driver.cuDeviceGetAttribute, "cuDeviceGetAttribute");
  take(driver.cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
  take(driver.cuCtxGetCurrent, "cuCtxGetCurrent");
  take(driver.cuCtxSetCurrent, "cuCtxSetCurrent");
  take(driver.cuLibraryLoadData, "cuLibraryLoadData");
  take(driver.cuLibraryGetKernel, "cuLibraryGetKernel");
  take(driver.cuKernelGetAttribute, "cuKernelGetAttribute");
  take(driver.cuKernelSetAttribute, "cuKernelSetAttribute");
  take(driver.cuLaunchKernelEx, "cuLaunchKernelEx");
  take(driver.cuGetErrorString, "cuGetErrorString");
  take(driver.cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode");
  return complete && driver.cuInit(0) == 0;
}

} // namespace

const Driver *driver() {
  static Driver driver{};
  static const bool usable = bind(driver);
  return usable ? &driver : nullptr;
}

const char *error_text(Result result) {
  const char *text = nullptr;
  if (driver()) driver()->cuGetErrorString(result, &text);
  return text ? text : "unknown CUDA error";
}

} // namespace avo::cuda

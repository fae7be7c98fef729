// Errors of the C shims, and allocation.
#include "tensor.h"

#include <atomic>

#include <dlfcn.h>

namespace avo {

void check_shim(AOTITorchError error, const char *what) {
  if (error == AOTI_TORCH_SUCCESS) return;
  // torch >= 2.13 keeps the message of the exception that a shim caught.
  using What = const char *(*)();
  static const auto last_exception =
      reinterpret_cast<What>(dlsym(RTLD_DEFAULT, "torch_exception_get_what_without_backtrace"));
  const char *message = last_exception ? last_exception() : nullptr;
  if (message && *message) fail(message);
  fail(what, " failed (torch wrote the reason to stderr)");
}

namespace {

AtenTensorHandle empty_strided(int64_t ndim, const int64_t *sizes, const int64_t *strides, int32_t dtype, bool cuda,
                               int32_t device) {
  AtenTensorHandle handle = nullptr;
  int32_t type = cuda ? aoti_torch_device_type_cuda() : aoti_torch_device_type_cpu();
  check_shim(aoti_torch_empty_strided(ndim, sizes, strides, dtype, type, device, &handle), "allocation of a tensor");
  return handle;
}

std::atomic<Allocate> allocator{empty_strided};

} // namespace

void set_allocator(Allocate allocate) { allocator.store(allocate, std::memory_order_release); }

OwnedTensor OwnedTensor::empty(int64_t ndim, const int64_t *sizes, const int64_t *strides, Dtype dtype, bool cuda,
                               int device) {
  Allocate allocate = allocator.load(std::memory_order_acquire);
  return OwnedTensor(allocate(ndim, sizes, strides, dtype_to_torch(dtype), cuda, device));
}

} // namespace avo

// Owning handles of torch tensors over the stable C shims: no reference count of our own.
#pragma once

#include <utility>

#include <torch/csrc/stable/c/shim.h>

#include "accelerator.h"
#include "dtype.h"
#include "message.h"

namespace avo {

// Throws when a shim failed; torch has written its own message to stderr, newer ones also say it.
void check_shim(AOTITorchError error, const char *what);

// Replaces the allocation of tensors; before any call.
void set_allocator(Allocate allocate);

class OwnedTensor {
public:
  OwnedTensor() = default;
  explicit OwnedTensor(AtenTensorHandle handle) : handle_(handle) {}
  OwnedTensor(OwnedTensor &&other) noexcept : handle_(other.release()) {}
  OwnedTensor &operator=(OwnedTensor &&other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~OwnedTensor() {
    if (handle_) aoti_torch_delete_tensor_object(handle_);
  }

  static OwnedTensor empty(int64_t ndim, const int64_t *sizes, const int64_t *strides, Dtype dtype, bool cuda,
                           int device);

  // Elements of a tensor in other sizes and strides, from `offset` elements after its first on.
  static OwnedTensor view(AtenTensorHandle whole, int64_t ndim, const int64_t *sizes, const int64_t *strides,
                          int64_t offset) {
    AtenTensorHandle made = nullptr; // the shim adds the offset to that of `whole`
    check_shim(aoti_torch__reinterpret_tensor(whole, ndim, sizes, strides, offset, &made), "view of a tensor");
    return OwnedTensor(made);
  }

  explicit operator bool() const { return handle_ != nullptr; }
  AtenTensorHandle get() const { return handle_; }
  AtenTensorHandle release() { return std::exchange(handle_, nullptr); }

  void *data() const {
    void *data = nullptr;
    check_shim(torch_get_mutable_data_ptr(handle_, &data), "access to a tensor");
    return data;
  }
  int64_t storage_bytes() const {
    int64_t bytes = 0;
    check_shim(aoti_torch_get_storage_size(handle_, &bytes), "access to a tensor");
    return bytes;
  }
  void copy_from(AtenTensorHandle source) const {
    check_shim(aoti_torch_copy_(handle_, source, 0), "copy of a tensor");
  }
  void zero() const { check_shim(aoti_torch_zero_(handle_), "zeroing of a tensor"); }

private:
  AtenTensorHandle handle_ = nullptr;
};

} // namespace avo

// The representation of arguments on a stack of the stable ABI
// (torch/csrc/stable/stableivalue_conversions.h), for TORCH_TARGET_VERSION 2.11: a tensor, list or string is
// an owned handle, an optional is null or a StableIValue of its own made by new, an int or float is its bits,
// a bool is the low byte.
#include "stack.h"

#include <bit>

namespace avo {
namespace {

template <class Handle> Handle as(StableIValue value) { return reinterpret_cast<Handle>(value); }
template <class Handle> StableIValue to_value(Handle handle) { return reinterpret_cast<StableIValue>(handle); }

StableListHandle list_of(StableIValue value) { return as<StableListHandle>(value); }

int64_t list_size(StableIValue value) {
  size_t size = 0;
  check_shim(torch_list_size(list_of(value), &size), "access to a list");
  return static_cast<int64_t>(size);
}

StableIValue list_item(StableIValue value, size_t i) {
  StableIValue item = 0;
  check_shim(torch_list_get_item(list_of(value), i, &item), "access to a list");
  return item;
}

void read_tensor(const Op &op, const ArgSpec &spec, AtenTensorHandle handle, TensorView &view) {
  if (!read_view(handle, view)) fail(op.subject, ": ", spec.name, " must be a tensor, but is None");
}

void read_str(const Op &op, const ArgSpec &spec, StableIValue value, Argument &arg) {
  size_t length = 0;
  const char *text = nullptr;
  check_shim(torch_string_length(as<StringHandle>(value), &length) | torch_string_c_str(as<StringHandle>(value), &text),
             "access to a string");
  arg.integer = choice_of(op, spec, text, length);
}

} // namespace

bool read_view(AtenTensorHandle handle, TensorView &view) {
  static const int32_t cuda = aoti_torch_device_type_cuda();
  bool defined = false; // None for a Tensor arrives as an undefined one
  check_shim(aoti_torch_is_defined(handle, &defined), "access to a tensor");
  if (!defined) return false;
  int64_t ndim = 0;
  int64_t *sizes = nullptr, *strides = nullptr;
  int32_t device_type = 0;
  int failed = aoti_torch_get_dim(handle, &ndim) | aoti_torch_get_sizes(handle, &sizes) |
               aoti_torch_get_strides(handle, &strides) | aoti_torch_get_dtype(handle, &view.torch_dtype) |
               aoti_torch_get_device_type(handle, &device_type) | aoti_torch_get_device_index(handle, &view.device) |
               torch_get_const_data_ptr(handle, &view.data);
  check_shim(failed, "access to a tensor");
  view.handle = handle;
  view.ndim = static_cast<int32_t>(ndim);
  view.sizes = sizes;
  view.strides = strides;
  view.dtype = dtype_from_torch(view.torch_dtype);
  view.cuda = device_type == cuda;
  return true;
}

AtenTensorHandle StackArguments::tensor(int arg) const {
  StableIValue value = stack_[arg];
  if (!op_->args[arg].optional) return as<AtenTensorHandle>(value);
  auto *boxed = as<StableIValue *>(value);
  return boxed ? as<AtenTensorHandle>(*boxed) : nullptr;
}

void StackArguments::read(Arguments &args) const {
  const Op &op = *op_;
  for (size_t i = 0; i < op.args.size(); ++i) {
    const ArgSpec &spec = op.args[i];
    Argument &arg = args.of[i];
    StableIValue value = stack_[i];
    arg.present = true;
    switch (spec.kind) {
    case ArgKind::Tensor:
      if (AtenTensorHandle handle = tensor(static_cast<int>(i))) read_tensor(op, spec, handle, arg.tensor);
      else arg.present = false;
      break;
    case ArgKind::Ints: {
      int64_t size = list_size(value), *values = args.take(op, spec, size);
      for (int64_t k = 0; k < size; ++k) values[k] = static_cast<int64_t>(list_item(value, k));
      arg.list = values;
      arg.length = static_cast<int32_t>(size);
      break;
    }
    case ArgKind::Int: arg.integer = static_cast<int64_t>(value); break;
    case ArgKind::Float:
      if (spec.optional) {
        arg.present = value != 0;
        value = arg.present ? *as<StableIValue *>(value) : 0;
      }
      arg.number = std::bit_cast<double>(value);
      break;
    case ArgKind::Str: read_str(op, spec, value, arg); break;
    case ArgKind::Mask: {
      int64_t size = list_size(value);
      check_mask_length(op, spec, size);
      arg.bits = 0;
      for (int64_t k = 0; k < size; ++k) arg.bits |= uint64_t((list_item(value, k) & 0xff) != 0) << k;
      break;
    }
    }
  }
}

void StackArguments::free_all() {
  if (!op_) return;
  for (size_t i = 0; i < op_->args.size(); ++i) {
    const ArgSpec &spec = op_->args[i];
    if (spec.kind == ArgKind::Tensor) {
      if (AtenTensorHandle handle = tensor(static_cast<int>(i))) aoti_torch_delete_tensor_object(handle);
    } else if (spec.kind == ArgKind::Ints || spec.kind == ArgKind::Mask) {
      torch_delete_list(list_of(stack_[i]));
    } else if (spec.kind == ArgKind::Str) {
      torch_delete_string(as<StringHandle>(stack_[i]));
    }
    if (spec.optional) delete as<StableIValue *>(stack_[i]);
  }
  op_ = nullptr;
}

void put_result(const Op &op, StableIValue *stack, int i, OwnedTensor tensor) {
  StableIValue value = to_value(tensor.release());
  if (!op.returns[i].optional) stack[i] = value;
  else stack[i] = value ? to_value(new StableIValue(value)) : 0;
}

} // namespace avo

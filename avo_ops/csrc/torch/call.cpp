// Values to arguments, and the shortest way from them to a kernel.
#include "call.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

// Of a CUDA build of torch, which is then loaded; elsewhere null.
namespace at::detail {
__attribute__((weak)) TensorBase empty_strided_cuda(IntArrayRef size, IntArrayRef stride, ScalarType dtype,
                                                    std::optional<Device> device);
}

namespace avo::accelerator {

Runtime runtime;

namespace {

ArgKind kind_of(const c10::Argument &argument) {
  c10::TypePtr type = argument.type(); // of a SymInt: int
  if (auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  switch (type->kind()) {
  case c10::TypeKind::TensorType: return ArgKind::Tensor;
  case c10::TypeKind::IntType: return ArgKind::Int;
  case c10::TypeKind::FloatType: return ArgKind::Float;
  case c10::TypeKind::StringType: return ArgKind::Str;
  case c10::TypeKind::ListType:
    return type->expectRef<c10::ListType>().getElementType()->kind() == c10::TypeKind::BoolType ? ArgKind::Mask
                                                                                                : ArgKind::Ints;
  default: throw std::runtime_error("avo_ops: no argument may have the type " + type->str());
  }
}

Dtype dtype_of(at::ScalarType type) {
  switch (type) {
  case at::kFloat: return Dtype::F32;
  case at::kHalf: return Dtype::F16;
  case at::kBFloat16: return Dtype::BF16;
  case at::kDouble: return Dtype::F64;
  case at::kLong: return Dtype::I64;
  case at::kInt: return Dtype::I32;
  case at::kFloat8_e4m3fn: return Dtype::F8;
  case at::kChar: return Dtype::I8;
  case at::kByte: return Dtype::U8;
  case at::kShort: return Dtype::I16;
  case at::kBool: return Dtype::B8;
  default: return Dtype::None;
  }
}

} // namespace

Operation::Operation(const std::string &qualified)
    : handle(c10::Dispatcher::singleton().findSchemaOrThrow(qualified.c_str(), "")),
      definition(c10::Dispatcher::singleton().findSchemaOrThrow(qualified.c_str(), "definition")),
      returns(handle.schema().returns().size()) {
  for (const c10::Argument &argument : handle.schema().arguments()) {
    kinds.push_back(kind_of(argument));
    optional.push_back(argument.type()->kind() == c10::TypeKind::OptionalType);
  }
  if (kinds.size() + returns > kMaxOperands || returns > kMaxReturns)
    throw std::runtime_error("avo_ops: " + qualified + " has too many arguments or returns");
}

const Op *Operation::kernels() const {
  const Op *op = table.load(std::memory_order_acquire);
  if (!op) table.store(op = runtime.called_op(handle.operator_name().name.c_str()), std::memory_order_release);
  return op;
}

const at::Tensor *tensor_of(const c10::IValue &value) {
  return value.isTensor() && value.toTensor().defined() ? &value.toTensor() : nullptr;
}

void read_tensor(const at::Tensor &tensor, Argument &arg) {
  TensorView &view = arg.tensor;
  arg.present = true;
  // The stable ABI's handle is a pointer to the tensor.
  view.handle = reinterpret_cast<AtenTensorHandle>(const_cast<at::Tensor *>(&tensor));
  view.data = tensor.const_data_ptr();
  view.sizes = tensor.sizes().data();
  view.strides = tensor.strides().data();
  view.ndim = static_cast<int32_t>(tensor.dim());
  at::ScalarType type = tensor.scalar_type();
  view.dtype = dtype_of(type);
  view.torch_dtype = static_cast<int32_t>(type);
  c10::Device device = tensor.device();
  view.cuda = device.is_cuda();
  view.device = device.index();
}

int64_t *take(Arguments &args, size_t count) {
  if (args.pool_used + count > std::size(args.pool)) return nullptr;
  int64_t *room = args.pool + args.pool_used;
  args.pool_used += static_cast<int>(count);
  return room;
}

bool read_one(const Operation &op, size_t i, const c10::IValue &value, Arguments &args) {
  Argument &arg = args.of[i];
  arg.present = op.kinds[i] == ArgKind::Tensor ? tensor_of(value) != nullptr : !value.isNone();
  if (!arg.present) return op.optional[i];
  switch (op.kinds[i]) {
  case ArgKind::Tensor: read_tensor(value.toTensor(), arg); return true;
  case ArgKind::Ints: {
    auto items = value.toListRef();
    int64_t *values = take(args, items.size());
    if (!values) return false;
    for (size_t k = 0; k < items.size(); ++k) {
      if (!items[k].isInt()) return false;
      values[k] = items[k].toInt();
    }
    arg.list = values;
    arg.length = static_cast<int32_t>(items.size());
    return true;
  }
  case ArgKind::Int:
    if (!value.isInt()) return false;
    arg.integer = value.toInt();
    return true;
  case ArgKind::Float:
    if (!value.isDouble()) return false;
    arg.number = value.toDouble();
    return true;
  case ArgKind::Str: {
    const std::string &text = value.toStringRef();
    arg.text = text.data();
    arg.length = static_cast<int32_t>(text.size());
    return true;
  }
  case ArgKind::Mask: {
    auto items = value.toListRef();
    arg.bits = 0;
    arg.length = static_cast<int32_t>(items.size());
    for (size_t k = 0; k < items.size() && k < 64; ++k) arg.bits |= uint64_t(items[k].toBool()) << k;
    return true;
  }
  }
  return false;
}

bool read(const Operation &op, const c10::IValue *values, Arguments &args) {
  for (size_t i = 0; i < op.kinds.size(); ++i)
    if (!read_one(op, i, values[i], args)) return false;
  return true;
}

bool reaches_kernel(c10::DispatchKeySet tensors) {
  static const c10::DispatchKeySet passed = c10::autograd_dispatch_keyset |
                                            c10::DispatchKeySet(c10::DispatchKey::ADInplaceOrView) |
                                            c10::DispatchKeySet(c10::DispatchKey::BackendSelect);
  auto local = c10::impl::tls_local_dispatch_key_set();
  auto keys = ((tensors | local.included_) - local.excluded_) - passed;
  bool kernel =
      keys == c10::DispatchKeySet(c10::DispatchKey::CPU) || keys == c10::DispatchKeySet(c10::DispatchKey::CUDA);
  return kernel && !at::hasCallbacks();
}

c10::DispatchKeySet keys_of(const Operation &op, const c10::IValue *values) {
  c10::DispatchKeySet keys;
  for (size_t i = 0; i < op.kinds.size(); ++i)
    if (op.kinds[i] == ArgKind::Tensor)
      if (const at::Tensor *tensor = tensor_of(values[i])) keys = keys | tensor->key_set();
  return keys;
}

bool run_kernel(const Operation &op, Arguments &args, at::Tensor *results) {
  AtenTensorHandle made[kMaxReturns] = {};
  if (!runtime.call(op.kernels(), args, made)) return false;
  for (size_t i = 0; i < op.returns; ++i)
    if (made[i]) {
      std::unique_ptr<at::Tensor> tensor(reinterpret_cast<at::Tensor *>(made[i]));
      results[i] = std::move(*tensor);
    }
  return true;
}

namespace {
void call_boxed(const c10::OperatorHandle &handle, const Operation &op, const c10::IValue *values,
                at::Tensor *results) {
  torch::jit::Stack stack(values, values + op.arguments());
  handle.callBoxed(stack);
  for (size_t i = 0; i < op.returns; ++i)
    if (const at::Tensor *tensor = tensor_of(stack[i])) results[i] = *tensor;
}
} // namespace

void call_by_dispatcher(const Operation &op, const c10::IValue *values, at::Tensor *results) {
  call_boxed(op.handle, op, values, results);
}

void call_definition(const Operation &op, const c10::IValue *values, at::Tensor *results) {
  call_boxed(op.definition, op, values, results);
}

void call_below_autograd(const Operation &op, const c10::IValue *values, at::Tensor *results) {
  at::AutoDispatchBelowAutograd guard;
  if (op.has_kernels && reaches_kernel(keys_of(op, values))) {
    Arguments args;
    if (read(op, values, args)) {
      if (!run_kernel(op, args, results)) call_definition(op, values, results);
      return;
    }
  }
  call_by_dispatcher(op, values, results);
}

void put_results(const Operation &op, at::Tensor *results, torch::jit::Stack &stack) {
  torch::jit::drop(stack, op.arguments());
  for (size_t i = 0; i < op.returns; ++i) {
    if (results[i].defined()) stack.emplace_back(std::move(results[i]));
    else stack.emplace_back();
  }
}

void Kernel::operator()(const c10::OperatorHandle &, c10::DispatchKeySet, torch::jit::Stack *stack) const {
  Arguments args;
  at::Tensor results[kMaxReturns];
  const c10::IValue *values = stack->data() + stack->size() - op_->arguments();
  if (read(*op_, values, args) && run_kernel(*op_, args, results)) put_results(*op_, results, *stack);
  else op_->definition.callBoxed(stack);
}

AtenTensorHandle allocate(int64_t ndim, const int64_t *sizes, const int64_t *strides, int32_t dtype, bool cuda,
                          int32_t device) {
  at::IntArrayRef size(sizes, static_cast<size_t>(ndim)), stride(strides, static_cast<size_t>(ndim));
  auto type = static_cast<at::ScalarType>(dtype);
  auto make = [&]() -> at::Tensor {
    if (!cuda) return at::Tensor(at::detail::empty_strided_cpu(size, stride, type));
    c10::Device where(c10::kCUDA, static_cast<c10::DeviceIndex>(device));
    if (at::detail::empty_strided_cuda) return at::Tensor(at::detail::empty_strided_cuda(size, stride, type, where));
    return at::empty_strided(size, stride, at::TensorOptions(where).dtype(type));
  };
  return reinterpret_cast<AtenTensorHandle>(new at::Tensor(make()));
}

} // namespace avo::accelerator

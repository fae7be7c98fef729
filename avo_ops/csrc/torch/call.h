// One call of an operator from the arguments that torch's dispatcher holds (IValues) or that Python gave, to the
// runtime library. Nothing here plans, launches or allocates: that is csrc/runtime, the same for both entrances.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "../runtime/accelerator.h"

namespace avo::accelerator {

// The runtime's functions, which registry/accelerator.py passes by address: the two libraries do not link.
struct Runtime {
  CalledOp called_op = nullptr;
  CallOp call = nullptr;
};
extern Runtime runtime;

// An op as torch knows it, and as the runtime does.
struct Operation {
  c10::OperatorHandle handle, definition;
  std::vector<ArgKind> kinds;
  std::vector<char> optional; // whether it may be None
  size_t returns;
  bool has_kernels = false; // else the dispatcher decides
  mutable std::atomic<const Op *> table{nullptr};

  explicit Operation(const std::string &qualified);
  size_t arguments() const { return kinds.size(); }
  // The runtime's, of an op with kernels; had at the first call.
  const Op *kernels() const;
};

// Null for None.
const at::Tensor *tensor_of(const c10::IValue &value);

// The arguments that the values stand for, borrowed from them. False where one is a symbol (of torch.compile).
bool read(const Operation &op, const c10::IValue *values, Arguments &args);
bool read_one(const Operation &op, size_t i, const c10::IValue &value, Arguments &args);
void read_tensor(const at::Tensor &tensor, Argument &arg);
// Room for an int list; null when the lists of this call are too long.
int64_t *take(Arguments &args, size_t count);

// Whether a call with tensors of these keys, below autograd, would reach the kernel for CPU or CUDA and nothing
// else: no mode, no transform, no subclass, no autocast, no profiler wants to see it.
bool reaches_kernel(c10::DispatchKeySet tensors);
c10::DispatchKeySet keys_of(const Operation &op, const c10::IValue *values);

// Runs the kernel; false, with nothing done, when there is none and the definition has to run.
bool run_kernel(const Operation &op, Arguments &args, at::Tensor *results);

// A call below autograd, directly if it reaches the kernel, else by the dispatcher.
void call_below_autograd(const Operation &op, const c10::IValue *values, at::Tensor *results);
void call_by_dispatcher(const Operation &op, const c10::IValue *values, at::Tensor *results);
// Where run_kernel says that there is no kernel.
void call_definition(const Operation &op, const c10::IValue *values, at::Tensor *results);

// The kernel for the CPU and CUDA keys.
struct Kernel final : c10::OperatorKernel {
  explicit Kernel(std::shared_ptr<const Operation> op) : op_(std::move(op)) {}
  void operator()(const c10::OperatorHandle &, c10::DispatchKeySet, torch::jit::Stack *stack) const;

private:
  std::shared_ptr<const Operation> op_;
};

// Replaces the values of a call on the stack by its results.
void put_results(const Operation &op, at::Tensor *results, torch::jit::Stack &stack);

// torch's allocation without the dispatcher, for the runtime.
AtenTensorHandle allocate(int64_t ndim, const int64_t *sizes, const int64_t *strides, int32_t dtype, bool cuda,
                          int32_t device);

} // namespace avo::accelerator

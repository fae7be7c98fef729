// The kernel at the Autograd key in C++: what registry/autograd.py does, for the common calls; the others it gives
// to that very Python kernel.
#pragma once

#include <functional>
#include <string>

#include <torch/csrc/autograd/variable.h>

#include "call.h"

namespace avo::accelerator {

using Tensors = std::vector<at::Tensor>;
using Values = std::vector<c10::IValue>;

// How an op is differentiated. Immutable; shared by its kernel and the nodes of the graphs that it made.
struct Rule {
  std::shared_ptr<const Operation> op;
  std::function<void(torch::jit::Stack &)> python; // the Python kernel
  std::vector<int> tensors, plain;                 // positions of the tensor arguments, and of the others
  std::vector<int> elements;                       // of those that must have one shape

  // Of a public op that has a backward op; else null, and Python records the call.
  std::shared_ptr<const Operation> forward, backward;
  std::string name; // of the node
  struct Saved {
    bool result; // of the forward op; else an argument
    int index;
  };
  std::vector<Saved> saved; // the first `kept` are arguments of the backward op
  size_t kept = 0;
  std::vector<int> gradients; // for each of `tensors`, its place among the backward op's returns; -1
  std::function<Tensors(const Tensors &saved, const Values &plain)> recompute; // of statistics; may be null
};

// Whether autograd has to see the call.
bool wants_gradient(const Rule &rule, const c10::IValue *values);
// A function transform or forward mode is at work: both need the definition's own operations.
bool definition_wanted();
// Whether the (M, N) operands have one shape. Others are expanded where autograd sees it, by the Python kernel, so
// that each gradient is summed back.
bool one_shape(const Rule &rule, const c10::IValue *values);
// Runs the forward op and puts a node on its results, the first `rule.op->returns` of `results`. There must be a
// backward op.
void record(const std::shared_ptr<const Rule> &rule, const c10::IValue *values, at::Tensor *results);

struct AutogradKernel final : c10::OperatorKernel {
  explicit AutogradKernel(std::shared_ptr<const Rule> rule) : rule_(std::move(rule)) {}
  void operator()(const c10::OperatorHandle &, c10::DispatchKeySet, torch::jit::Stack *stack) const;

private:
  std::shared_ptr<const Rule> rule_;
};

} // namespace avo::accelerator

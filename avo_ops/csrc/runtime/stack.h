// The stack of a boxed call: reading its arguments without taking them, freeing them, and writing results.
#pragma once

#include <torch/csrc/stable/c/shim.h>

#include "arguments.h"
#include "tensor.h"

namespace avo {

// What a handle refers to; false for None.
bool read_view(AtenTensorHandle handle, TensorView &view);

// Owns the arguments on the stack until release: a boxed kernel must free what it was given.
class StackArguments {
public:
  StackArguments(const Op &op, StableIValue *stack) : op_(&op), stack_(stack) {}
  StackArguments(const StackArguments &) = delete;
  ~StackArguments() { free_all(); }

  void read(Arguments &args) const;
  AtenTensorHandle tensor(int arg) const; // null for None

  // The results may overwrite the arguments from here on.
  void free_all();
  // Somebody else frees the arguments.
  void release() { op_ = nullptr; }

private:
  const Op *op_;
  StableIValue *stack_;
};

// Writes result i; an absent one is None.
void put_result(const Op &op, StableIValue *stack, int i, OwnedTensor tensor);

} // namespace avo

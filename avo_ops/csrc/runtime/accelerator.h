// What the accelerator (csrc/torch) takes from this library: plain functions, by address. Both are built from the
// same sources, so they may share the types of the runtime; errors are exceptions.
#pragma once

#include <torch/csrc/stable/c/shim.h>

#include "arguments.h"

namespace avo {

// The operator "namespace::name", from its first call on; calls Python for the table if need be.
using CalledOp = const Op *(*)(const char *qualified);

// One call without boxing: tensors of `args` are borrowed, str and mask arguments as they came. Fills `returns` with
// owned handles (null: None) and gives true, or gives false, with nothing done, when the definition has to run.
using CallOp = bool (*)(const Op *op, Arguments &args, AtenTensorHandle *returns);

// Allocation of a tensor. The default is aoti_torch_empty_strided, which goes through the dispatcher.
using Allocate = AtenTensorHandle (*)(int64_t ndim, const int64_t *sizes, const int64_t *strides, int32_t dtype,
                                      bool cuda, int32_t device);

} // namespace avo

// Execution of a plan.
#pragma once

#include "plan.h"
#include "stack.h"

namespace avo {

// Plans a call and runs its kernels. False, with nothing done, when the definition has to run.
bool call_kernels(const Op &op, const Arguments &args, OwnedTensor *returns);

// A boxed call of one operator: call_kernels or the definition, from stack to stack.
void call_operator(const Op &op, StableIValue *stack, uint64_t arguments, uint64_t results);

// Each runs a plan of its device and fills the tensors of the returns; false, with nothing done, when a
// kernel could not be had: the definition has to run.
bool run_cpu(const Plan &plan, const Arguments &args, OwnedTensor *returns);
bool run_cuda(const Plan &plan, const Arguments &args, OwnedTensor *returns);

OwnedTensor allocate_return(const Plan &plan, const Operand &operand);
// The temporary of an operand, filled from `source` unless that is null.
OwnedTensor allocate_temporary(const Plan &plan, const Operand &operand, AtenTensorHandle source);

} // namespace avo

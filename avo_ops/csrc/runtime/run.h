// Execution of a plan.
#pragma once

#include "plan.h"
#include "stack.h"

namespace avo {

// A boxed call of one operator: plans it, runs it, leaves the results on the stack.
void call_operator(const Op &op, StableIValue *stack, uint64_t arguments, uint64_t results);

// Each runs a plan of its device and fills the tensors of the returns; false, with nothing done, when a
// kernel could not be had: the definition has to run.
bool run_cpu(const Plan &plan, const Arguments &args, const StackArguments &inputs, OwnedTensor *returns);
bool run_cuda(const Plan &plan, const Arguments &args, const StackArguments &inputs, OwnedTensor *returns);

OwnedTensor allocate_return(const Plan &plan, const Operand &operand);
// The temporary of an operand, filled from `source` unless that is null.
OwnedTensor allocate_temporary(const Plan &plan, const Operand &operand, AtenTensorHandle source);

} // namespace avo

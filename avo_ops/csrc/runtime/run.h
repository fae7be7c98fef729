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
// The temporary of operand k, filled from the argument or part of one that it stands for.
OwnedTensor allocate_temporary(const Plan &plan, int k, const Arguments &args);
// Copies a temporary to the return, or the part of one, that operand k is.
void copy_to_return(const Plan &plan, int k, const OwnedTensor &temporary, const OwnedTensor *returns);
// Where operand k lies, one of the returns or a part of one.
void *data_of_return(const Plan &plan, int k, const OwnedTensor *returns);

} // namespace avo

// One call: its plan, its execution, and for the stable ABI from stack to stack.
#include "run.h"

#include "cuda_kernels.h"
#include "emulation.h"
#include "strict.h"

namespace avo {
namespace {

void count(std::atomic<uint64_t> &counter) { counter.fetch_add(1, std::memory_order_relaxed); }

void run_definition(const Op &op, StackArguments &inputs, StableIValue *stack) {
  // The dispatcher takes the arguments, also when it fails. (Of a str it loses 32 bytes: torch 2.13,
  // ToImpl<std::string>.)
  inputs.release();
  check_shim(torch_call_dispatcher(op.qualified.c_str(), "definition", stack, TORCH_ABI_VERSION),
             (op.qualified + ".definition").c_str());
}

void allocate_empty(const Plan &plan, OwnedTensor *returns) {
  const Op &op = *plan.op;
  count(op.empties);
  for (size_t i = 0; i < op.returns.size(); ++i) {
    const Operand &operand = plan.operands[op.operand_of_return(static_cast<int>(i))];
    if (!operand.present) continue;
    returns[i] = allocate_return(plan, operand);
    if (operand.span == Span::N && plan.sum_columns > 0) returns[i].zero();
  }
}

// Whether the plan ran; if not, the definition must.
bool run_plan(const Plan &plan, const Arguments &args, OwnedTensor *returns) {
  switch (plan.outcome) {
  case Outcome::Nothing: count(plan.op->empties); return true;
  case Outcome::Empty: allocate_empty(plan, returns); return true;
  case Outcome::Cpu: return run_cpu(plan, args, returns);
  case Outcome::Cuda: return run_cuda(plan, args, returns);
  case Outcome::Definition: return false;
  }
  return false;
}

OwnedTensor view_of(const Operand &part, AtenTensorHandle whole) {
  return OwnedTensor::view(whole, part.ndim, part.sizes, part.strides, part.offset);
}

} // namespace

OwnedTensor allocate_return(const Plan &plan, const Operand &operand) {
  if (plan.splits(operand))
    return OwnedTensor::empty(plan.whole_ndim, plan.whole_sizes, plan.whole_strides, operand.declared,
                              plan.target.has_cuda_memory(), plan.target.device);
  return OwnedTensor::empty(operand.ndim, operand.sizes, operand.strides, operand.declared,
                            plan.target.has_cuda_memory(), plan.target.device);
}

OwnedTensor allocate_temporary(const Plan &plan, int k, const Arguments &args) {
  const Operand &operand = plan.operands[k];
  if (operand.copy) count(plan.op->copies);
  if (operand.cast) count(plan.op->casts);
  OwnedTensor made = OwnedTensor::empty(operand.ndim, operand.sizes, operand.temp_strides, operand.dtype,
                                        plan.target.has_cuda_memory(), plan.target.device);
  int whole = plan.op->whole_of(k);
  if (plan.op->is_return(k)) return made;
  AtenTensorHandle source = args.of[whole].tensor.handle;
  if (whole == k && !plan.splits(operand)) made.copy_from(source);
  else made.copy_from(view_of(operand, source).get());
  return made;
}

void copy_to_return(const Plan &plan, int k, const OwnedTensor &temporary, const OwnedTensor *returns) {
  int whole = plan.op->whole_of(k);
  const OwnedTensor &target = returns[whole - plan.op->args.size()];
  if (whole == k && !plan.splits(plan.operands[k])) target.copy_from(temporary.get());
  else view_of(plan.operands[k], target.get()).copy_from(temporary.get());
}

void *data_of_return(const Plan &plan, int k, const OwnedTensor *returns) {
  const Operand &operand = plan.operands[k];
  char *data = static_cast<char *>(returns[plan.op->whole_of(k) - plan.op->args.size()].data());
  return data + operand.offset * size_of(operand.declared);
}

bool call_kernels(const Op &op, const Arguments &args, OwnedTensor *returns) {
  Target target;
  const TensorView &primary = args.of[op.primary].tensor;
  if (primary.cuda) target = cuda_target(primary.device);
  else if (emulating()) target = emulated_target();
  Plan plan;
  plan_call(op, args, target, plan);
  check_copies(plan);
  if (run_plan(plan, args, returns)) return true;
  if (plan.strided) { // nothing can compile the kernels: those for one stride may be there
    target.strided = false;
    plan_call(op, args, target, plan);
    check_copies(plan);
    if (run_plan(plan, args, returns)) return true;
  }
  check_definition(plan);
  count(op.definitions);
  return false;
}

void call_operator(const Op &op, StableIValue *stack, uint64_t arguments, uint64_t results) {
  if (arguments != op.args.size() || results != op.returns.size())
    fail(op.qualified, ": the schema has ", arguments, " arguments and ", results, " returns, the operator table ",
         op.args.size(), " and ", op.returns.size());
  StackArguments inputs(op, stack);
  Arguments args;
  inputs.read(args);
  OwnedTensor returns[kMaxReturns];
  if (!call_kernels(op, args, returns)) {
    run_definition(op, inputs, stack);
    return;
  }
  inputs.free_all();
  for (size_t i = 0; i < op.returns.size(); ++i) put_result(op, stack, static_cast<int>(i), std::move(returns[i]));
}

} // namespace avo

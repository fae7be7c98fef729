// Execution of a CUDA plan: temporaries and launches. All memory is torch's.
#include "cuda_params.h"
#include "hot_widths.h"
#include "launcher.h"
#include "run.h"

namespace avo {

bool run_cuda(const Plan &plan, const Arguments &args, OwnedTensor *returns) {
  const Op &op = *plan.op;
  int count = op.operand_count();
  std::unique_ptr<Launcher> launcher = plan.target.emulated ? emulator_launcher() : driver_launcher(plan.target);
  if (!launcher) return false;

  void *kernels[kMaxSteps];
  for (int s = 0; s < plan.step_count; ++s) {
    kernels[s] = launcher->kernel(*plan.steps[s].step->family, *plan.steps[s].use->variant);
    if (!kernels[s]) return false;
  }

  OwnedTensor temporaries[kMaxOperands], workspaces[kMaxSteps];
  void *data[kMaxOperands + 1];
  data[kAbsent] = nullptr;
  for (int k = 0; k < count; ++k) { // parts come after their wholes
    const Operand &operand = plan.operands[k];
    data[k] = nullptr;
    bool is_return = op.is_return(k);
    if (is_return && operand.present && op.whole_of(k) == k) {
      OwnedTensor &made = returns[k - static_cast<int>(op.args.size())];
      made = allocate_return(plan, operand);
      launcher->allocated(made);
    }
    if (!plan.exists(k)) continue;
    if (operand.copy || operand.cast) {
      temporaries[k] = allocate_temporary(plan, k, args);
      if (is_return) launcher->allocated(temporaries[k]);
      data[k] = temporaries[k].data();
    } else {
      data[k] = is_return ? data_of_return(plan, k, returns) : const_cast<void *>(operand.data); // not written to
    }
  }
  for (int i = 0; i < plan.workspace_count; ++i) {
    int64_t size = plan.workspaces[i].groups * plan.workspaces[i].sums * plan.sum_columns, stride = 1;
    workspaces[i] =
        OwnedTensor::empty(1, &size, &stride, plan.compute, plan.target.has_cuda_memory(), plan.target.device);
    launcher->allocated(workspaces[i]);
  }

  for (int s = 0; s < plan.step_count; ++s) {
    const StepPlan &step = plan.steps[s];
    LaunchParams params;
    fill_params(plan, step, args, data, step.workspace >= 0 ? workspaces[step.workspace].data() : nullptr, params);
    launcher->launch(op.name, *step.use->variant, step.grid, kernels[s], params.pointers);
    step.use->calls.fetch_add(1, std::memory_order_relaxed);
    note_width(*step.step->family, *step.use, plan.N, plan.target);
  }
  for (int k = 0; k < count; ++k)
    if (temporaries[k] && op.is_return(k)) copy_to_return(plan, k, temporaries[k], returns);
  return true;
}

} // namespace avo

// The parameters of one kernel launch, laid out for the driver.
#pragma once

#include "plan.h"

namespace avo {

struct LaunchParams {
  uint64_t slots[kMaxParams];
  void *pointers[kMaxParams];
  RowStrides strides[kMaxParams]; // of operands of a kernel that takes several
};

// `data[k]` is where operand k lies (null: absent), `partials` the workspace of the step, or null.
void fill_params(const Plan &plan, const StepPlan &step, const Arguments &args, void *const *data, void *partials,
                 LaunchParams &params);

} // namespace avo

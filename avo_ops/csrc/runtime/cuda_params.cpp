// Values of launch parameters, each in a slot of eight bytes.
#include "cuda_params.h"

#include <cstring>

namespace avo {
namespace {

template <class T> uint64_t bits(T value) {
  uint64_t slot = 0;
  std::memcpy(&slot, &value, sizeof value);
  return slot;
}

} // namespace

void fill_params(const Plan &plan, const StepPlan &step, const Arguments &args, void *const *data, void *partials,
                 LaunchParams &params) {
  const auto &list = step.step->params;
  for (size_t i = 0; i < list.size(); ++i) {
    const Param &param = list[i];
    uint64_t &slot = params.slots[i];
    params.pointers[i] = &slot;
    switch (param.kind) {
    case ParamKind::Pointer: slot = bits(data[param.index]); break;
    case ParamKind::Stride: // an absent operand has no stride, a span other than MN no row stride
      slot = plan.exists(param.index) && plan.operands[param.index].span == Span::MN
                 ? bits(plan.operands[param.index].row_strides[0])
                 : 0;
      break;
    case ParamKind::M: slot = bits(rows_of(plan, step)); break;
    case ParamKind::N: slot = bits(columns_of(plan, *step.step)); break;
    case ParamKind::Run: slot = bits(plan.run); break;
    case ParamKind::Runs: slot = bits(plan.runs); break;
    case ParamKind::Channels: slot = bits(plan.channels); break;
    case ParamKind::Aligned: slot = bits(static_cast<int32_t>(step.aligned)); break;
    case ParamKind::Scalar: {
      double value = scalar_value(plan, args, param.index);
      slot = plan.compute == Dtype::F64 ? bits(value) : bits(static_cast<float>(value));
      break;
    }
    case ParamKind::Partials: slot = bits(partials); break;
    case ParamKind::Groups: slot = bits(static_cast<int32_t>(step.groups)); break;
    }
  }
}

} // namespace avo

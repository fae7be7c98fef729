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

// How the kernel divides by the number of rows of a digit.
void set_divisor(RowStrides &rows, int i, uint32_t size) {
  int bits = 0; // ceil(log2 size)
  while ((uint64_t{1} << bits) < size) ++bits;
  rows.size[i] = size;
  rows.shift[i] = static_cast<unsigned>(31 + bits);
  rows.factor[i] = static_cast<unsigned>(((uint64_t{1} << rows.shift[i]) + size - 1) / size);
}

// The digits of an operand's rows are the last ones; those before them are always 0.
RowStrides row_strides_of(const Operand &operand) {
  RowStrides rows{};
  const int skipped = kMaxStrides - operand.row_dims;
  for (int i = 0; i < operand.row_dims; ++i) rows.stride[skipped + i] = operand.row_strides[i];
  for (int i = 0; i < kMaxStrides - 1; ++i) {
    const int digit = i + 1 - skipped;
    set_divisor(rows, i, digit < 0 ? 1 : static_cast<uint32_t>(operand.row_sizes[digit]));
  }
  return rows;
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
      if (step.use->variant->strided && !plan.op->is_return(param.index)) {
        params.strides[i] = plan.exists(param.index) ? row_strides_of(plan.operands[param.index]) : RowStrides{};
        params.pointers[i] = &params.strides[i];
        break;
      }
      slot = plan.exists(param.index) && plan.operands[param.index].span == Span::MN
                 ? bits(plan.operands[param.index].row_strides[0])
                 : 0;
      break;
    case ParamKind::Step: slot = bits(int64_t{plan.operands[param.index].repeated ? 0 : 1}); break;
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

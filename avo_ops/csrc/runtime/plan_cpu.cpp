// Planning for the CPU: rows merged jointly into at most eight dimensions. Kernels take any strides and
// dtypes, so an operand is copied only when its columns have no single stride, or when the rows do not fit.
#include "plan.h"

#include "normal_form.h"

namespace avo {
namespace {

// Whether an operand has rows.
bool has_rows(const Operand &operand) { return operand.span == Span::MN || operand.span == Span::M; }

// The layout of a copy. MN operands take that of the results.
const int64_t *copy_layout(const Plan &plan, Span span) {
  if (span == Span::N) return plan.n_strides;
  if (span == Span::M) return plan.m_strides;
  return plan.op->rule == Rule::Flat ? plan.normal : plan.contiguous;
}

void use_copy(const Plan &plan, Operand &operand) {
  const int64_t *layout = copy_layout(plan, operand.span);
  if (same_layout(operand.sizes, operand.ndim, operand.strides, layout)) return;
  operand.copy = true;
  operand.temp_strides = layout;
}

// Columns of one operand of rule groups, which may have a stride of their own from run to run.
bool set_run_stride(const Plan &plan, Operand &operand) {
  const int64_t *strides = operand.kernel_strides();
  if (operand.span == Span::N) { // one value a run
    operand.col_stride = strides[0];
    return true;
  }
  if (!merged_stride(plan.sizes, strides, plan.order, 3, plan.ndim, &operand.col_stride)) return false;
  if (plan.run == 1) operand.col_stride = strides[2];
  bool one = plan.runs == 1 || plan.run == 1 || strides[2] == operand.col_stride * plan.run;
  operand.run_stride = one ? 0 : strides[2];
  // Runs that are all the same are two strides too.
  return one || strides[2] != 0;
}

// Columns of one operand; false when they have no single stride.
bool set_column_stride(const Plan &plan, Operand &operand) {
  const int64_t *strides = operand.kernel_strides();
  operand.run_stride = 0;
  if (operand.span == Span::M || operand.span == Span::One) {
    operand.col_stride = 0;
    return true;
  }
  if (plan.op->rule == Rule::Groups) return set_run_stride(plan, operand);
  if (operand.span == Span::MN)
    return merged_stride(plan.sizes, strides, plan.order, plan.column_begin, plan.ndim, &operand.col_stride);
  return merged_stride(plan.column_sizes, strides, kIdentity, 0, plan.column_ndim, &operand.col_stride);
}

// Merges the row dims of all operands jointly; false when more than eight remain.
bool merge_rows(Plan &plan) {
  int count = plan.op->operand_count(), groups = 0, previous = -1;
  // The stride of an operand along a dim. An N operand of rule groups has one along the groups.
  bool by_runs = plan.op->rule == Rule::Groups;
  auto stride_of = [&](const Operand &operand, int d) -> int64_t {
    if (has_rows(operand)) return operand.kernel_strides()[d];
    return by_runs && operand.span == Span::N && d == 1 ? operand.kernel_strides()[0] * plan.runs : 0;
  };
  for (int i = plan.column_begin - 1; i >= 0; --i) {
    int d = plan.order[i];
    if (plan.sizes[d] == 1) continue;
    bool merges = previous >= 0;
    for (int k = 0; merges && k < count; ++k) {
      const Operand &operand = plan.operands[k];
      if (!plan.exists(k) || !(has_rows(operand) || (by_runs && operand.span == Span::N))) continue;
      merges = stride_of(operand, d) == stride_of(operand, previous) * plan.sizes[previous];
    }
    previous = d;
    if (merges) {
      plan.row_sizes[groups - 1] *= plan.sizes[d];
      continue;
    }
    if (groups == AVO_MAX_ROW_DIMS) return false;
    plan.row_sizes[groups] = plan.sizes[d];
    for (int k = 0; k < count; ++k) {
      Operand &operand = plan.operands[k];
      if (plan.exists(k)) operand.row_strides[groups] = stride_of(operand, d);
    }
    ++groups;
  }
  if (groups == 0) {
    groups = 1;
    plan.row_sizes[0] = 1;
    for (int k = 0; k < count; ++k) plan.operands[k].row_strides[0] = 0;
  }
  plan.row_dims = groups; // found innermost first: turn around
  for (int a = 0, b = groups - 1; a < b; ++a, --b) {
    std::swap(plan.row_sizes[a], plan.row_sizes[b]);
    for (int k = 0; k < count; ++k)
      if (plan.exists(k)) std::swap(plan.operands[k].row_strides[a], plan.operands[k].row_strides[b]);
  }
  return true;
}

} // namespace

void plan_cpu(Plan &plan) {
  const Op &op = *plan.op;
  int count = op.operand_count();
  plan.outcome = Outcome::Cpu;
  for (bool copied = false;; copied = true) {
    if (op.rule == Rule::Flat) choose_columns(plan);
    for (int k = 0; k < count; ++k) {
      Operand &operand = plan.operands[k];
      if (!plan.exists(k) || set_column_stride(plan, operand)) continue;
      use_copy(plan, operand); // results never come here: they are contiguous
      set_column_stride(plan, operand);
    }
    if (merge_rows(plan) || copied) return;
    for (int k = 0; k < count; ++k)
      if (plan.exists(k) && !op.is_return(k) && has_rows(plan.operands[k])) use_copy(plan, plan.operands[k]);
  }
}

} // namespace avo

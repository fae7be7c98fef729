// Planning for CUDA: one dtype for MN operands and one for N operands, two-dimensional operands, then the
// first alternative that serves the call, its variants and grids.
#include "plan.h"

#include <algorithm>
#include <climits>
#include <cmath>

#include "normal_form.h"

namespace avo {
namespace {

constexpr int64_t kMaxGridX = INT32_MAX, kMaxGridY = 65535;

template <class F> void for_each(Plan &plan, Span span, F f) {
  int count = plan.op->operand_count();
  for (int k = 0; k < count; ++k)
    if (plan.exists(k) && plan.operands[k].span == span) f(plan.operands[k]);
}

bool has_kernels(const Plan &plan, Dtype x, Dtype w) {
  const auto &alternatives = plan.chosen->cuda;
  return std::any_of(alternatives.begin(), alternatives.end(), [&](const Alternative &one) {
    return std::none_of(one.steps.begin(), one.steps.end(),
                        [&](const Step &step) { return step.uses[index_of(x)][index_of(w)].empty(); });
  });
}

// X: what the MN operands promote to. W: the one dtype of the N arguments if kernels exist for it beside X,
// else float32. Without N arguments the N results decide.
void choose_dtypes(Plan &plan) {
  int count = plan.op->operand_count();
  Dtype x = Dtype::None, w = Dtype::None;
  bool mixed = false;
  auto take = [&](bool returns) {
    for (int k = 0; k < count; ++k) {
      const Operand &operand = plan.operands[k];
      if (!plan.exists(k) || operand.span != Span::N || plan.op->is_return(k) != returns) continue;
      mixed = mixed || (w != Dtype::None && w != operand.declared) || is_stored(operand.declared);
      w = operand.declared;
    }
  };
  for (int k = 0; k < count; ++k) // the results too: a kernel rounds them to X
    if (plan.exists(k) && plan.operands[k].span == Span::MN && !is_stored(plan.operands[k].declared))
      x = promote(x, plan.operands[k].declared);
  if (plan.compute == Dtype::F64 || x == Dtype::None) x = plan.compute;
  take(false);
  if (w == Dtype::None) take(true);
  if (w == Dtype::None) w = x;
  if (mixed || w != x || !has_kernels(plan, x, w)) w = x == Dtype::F64 ? Dtype::F64 : Dtype::F32;
  plan.x = x;
  plan.w = w;
}

void set_cast(Operand &operand, Dtype dtype, const int64_t *temp_strides) {
  operand.dtype = dtype;
  operand.cast = dtype != operand.declared;
  operand.temp_strides = temp_strides;
}

void use_copy(Operand &operand, const int64_t *temp_strides) {
  operand.copy = true;
  operand.temp_strides = temp_strides;
}

bool dense(const Plan &plan, const int64_t *strides) {
  int order[kMaxDims];
  order_by_strides(plan.sizes, plan.ndim, strides, order);
  return is_dense(plan.sizes, plan.ndim, strides, order);
}

bool is_one_number(const Operand &operand) {
  for (int d = 0; d < operand.ndim; ++d)
    if (operand.sizes[d] > 1 && operand.strides[d] != 0) return false;
  return true;
}

// Whether every kernel of the case that reads the operand takes one number for all rows, as a mean's gradient is.
bool knows_steps(const Plan &plan, const Operand &operand) {
  const int index = static_cast<int>(&operand - plan.operands);
  for (const Alternative &alternative : plan.chosen->cuda)
    for (const Step &step : alternative.steps) {
      const auto has = [&](ParamKind kind) {
        return std::any_of(step.params.begin(), step.params.end(),
                           [&](const Param &param) { return param.kind == kind && param.index == index; });
      };
      if (has(ParamKind::Pointer) && !has(ParamKind::Step)) return false;
    }
  return true;
}

// Casts keep the layout of a dense operand, so that a call stays flat.
void plan_casts(Plan &plan) {
  for_each(plan, Span::MN, [&](Operand &operand) {
    if (is_stored(operand.declared)) return; // the kernel knows it
    bool keep = operand.declared == plan.x || dense(plan, operand.strides);
    set_cast(operand, plan.x, keep ? operand.strides : plan.normal);
  });
  for_each(plan, Span::N, [&](Operand &operand) {
    set_cast(operand, plan.w, plan.n_strides);
    // Kernels read N operands from 16-byte aligned addresses; a return is allocated so.
    bool aligned = operand.cast || (reinterpret_cast<uintptr_t>(operand.data) & 15) == 0;
    if (!aligned || !same_layout(operand.sizes, operand.ndim, operand.kernel_strides(), plan.n_strides))
      use_copy(operand, plan.n_strides);
  });
  for_each(plan, Span::M, [&](Operand &operand) {
    set_cast(operand, is_integer(operand.declared) ? Dtype::I64 : plan.compute, plan.m_strides);
    if (same_layout(operand.sizes, operand.ndim, operand.kernel_strides(), plan.m_strides)) return;
    operand.repeated = !operand.cast && is_one_number(operand) && knows_steps(plan, operand);
    if (!operand.repeated) use_copy(operand, plan.m_strides);
  });
  for_each(plan, Span::One, [&](Operand &operand) { set_cast(operand, plan.compute, operand.strides); });
}

// All MN operands have the layout of the primary, which is dense.
bool is_flat(Plan &plan) {
  const int64_t *primary = plan.operands[plan.op->primary].kernel_strides();
  bool flat = true;
  for_each(plan, Span::MN, [&](Operand &operand) {
    flat = flat && same_layout(plan.sizes, plan.ndim, operand.kernel_strides(), primary);
  });
  return flat && dense(plan, primary);
}

// Gives every MN operand the layout of a dense primary, or else the order of the iteration.
void make_flat(Plan &plan) {
  const int64_t *layout = plan.operands[plan.op->primary].strides;
  if (!dense(plan, layout)) layout = plan.normal;
  for_each(plan, Span::MN, [&](Operand &operand) {
    if (!same_layout(plan.sizes, plan.ndim, operand.kernel_strides(), layout)) use_copy(operand, layout);
  });
  plan.flat = true;
}

// Whether rows may have several strides, what a kernel takes them with being compiled when it is first called. A few
// instructions for each row cost less than a copy: that reads and writes what the kernel then reads again, and where an
// operand broadcasts, as cos over heads, it makes much of little. So rows are copied only where no kernel can walk
// them: more strides than kMaxStrides, or more rows than its arithmetic holds.
int most_strides(const Plan &plan) { return plan.target.strided && plan.M <= INT32_MAX ? kMaxStrides : 1; }

// Finds where the rows of an MN operand lie; false if it must be copied. A result has one stride.
bool find_rows(const Plan &plan, Operand &operand, bool is_return) {
  const int64_t *strides = operand.kernel_strides();
  if (!merged_stride(plan.sizes, strides, plan.order, plan.column_begin, plan.ndim, &operand.col_stride) ||
      operand.col_stride != 1)
    return false;
  operand.row_dims = 1;
  operand.row_sizes[0] = plan.M;
  operand.row_strides[0] = plan.N;
  if (plan.M == 1) return true;
  // What is cast is written anew in any case.
  const int most = is_return || operand.cast ? 1 : most_strides(plan);
  operand.row_dims = merged_strides(plan.sizes, strides, plan.order, 0, plan.column_begin, most, operand.row_sizes,
                                    operand.row_strides);
  return operand.row_dims > 0;
}

void make_two_dimensional(Plan &plan) {
  int count = plan.op->operand_count();
  for (int k = 0; k < count; ++k) {
    Operand &operand = plan.operands[k];
    if (!plan.exists(k) || operand.span != Span::MN) continue;
    if (!find_rows(plan, operand, plan.op->is_return(k))) {
      use_copy(operand, plan.normal);
      find_rows(plan, operand, plan.op->is_return(k));
    }
    plan.strided = plan.strided || operand.row_dims > 1;
  }
}

// ---- variants and grids ----

Alignment alignment_of(Plan &plan, bool flat) {
  Alignment found;
  found.extents = flat ? plan.numel : plan.N;
  int count = plan.op->operand_count();
  for (int k = 0; k < count; ++k) {
    Operand &operand = plan.operands[k];
    if (!plan.exists(k)) continue;
    bool temporary = operand.copy || operand.cast;
    if (operand.span == Span::MN && !flat) {
      if (find_rows(plan, operand, plan.op->is_return(k)))
        for (int i = 0; i < operand.row_dims; ++i) found.extents |= operand.row_strides[i];
      else temporary = true;
    }
    if (!temporary) found.pointers |= reinterpret_cast<uintptr_t>(operand.data);
  }
  return found;
}

// Whether rows are no whole number of chunks; or, for kernels in which the threads of a row do not bear on bits (those
// whose grid has tiles of columns), do not all start at one.
bool odd_rows(const Variant &variant, const Plan &plan, int64_t n, const Alignment &alignment) {
  int chunk = chunk_of(plan);
  return variant.cols > 0 ? !alignment.allows(chunk) : n % chunk != 0;
}

int64_t persistent_blocks(const Variant &variant, const Target &target) {
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(variant.persist * target.sms)));
}

// If rows are whole chunks, the variant for calls of few rows, the one specialised for this N, or else the first for
// such rows whose range holds N; if they are not, the first for those; or the first for any row.
const Use *choose_use(const Step &step, const Plan &plan, int64_t n, const Alignment &alignment) {
  const auto &uses = step.uses[index_of(plan.x)][index_of(plan.w)];
  for (const auto &use : uses)
    if (use->variant->exact == kFewRows && use->variant->holds(n) && alignment.allows(use->variant->vec) &&
        plan.M <= persistent_blocks(*use->variant, plan.target) * use->variant->rows)
      return use.get();
  for (const auto &use : uses)
    if (use->variant->exact == n && alignment.allows(use->variant->vec)) return use.get();
  for (const auto &use : uses)
    if (use->variant->exact == kWholeChunks && use->variant->holds(n) && alignment.allows(use->variant->vec))
      return use.get();
  for (const auto &use : uses)
    if (use->variant->exact == kOddRows && use->variant->holds(n) && odd_rows(*use->variant, plan, n, alignment))
      return use.get();
  for (const auto &use : uses)
    if (use->variant->exact == kAnyWidth && use->variant->holds(n)) return use.get();
  return nullptr;
}

// Grid rules of the families. A cluster works on one row group together.
bool plan_grid(const Plan &plan, StepPlan &step) {
  const Family &family = *step.step->family;
  const Variant &v = *step.use->variant;
  int64_t x = 1, y = 1;
  switch (family.kind) {
  case FamilyClass::Flat: x = ceil_div(plan.N, int64_t{v.block} * v.vec); break;
  case FamilyClass::Row:
  case FamilyClass::Loop:
    x = ceil_div(plan.M, v.rows);
    if (v.persist > 0) x = std::min(x, std::max<int64_t>(1, persistent_blocks(v, plan.target) / v.cluster));
    step.groups = x; // the blocks of a cluster share a row, and so a partial row
    x *= v.cluster;
    if (v.cols > 0) y = ceil_div(plan.N, v.cols);
    break;
  case FamilyClass::Column:
    x = ceil_div(plan.N, v.cols);
    y = std::min(ceil_div(plan.M, int64_t{v.rows} * 4),
                 std::max<int64_t>(1, static_cast<int64_t>(v.persist * plan.target.sms) / x)); // one wave
    step.groups = y;
    break;
  case FamilyClass::Runs:
    x = ceil_div(rows_of(plan, step), v.rows);
    step.groups = plan.M / plan.groups; // a partial row for each sample
    break;
  case FamilyClass::Finish:
    x = ceil_div(plan.sum_columns, 32);
    y = std::max(family.sums, 1);
    break;
  }
  step.grid[0] = static_cast<uint32_t>(x);
  step.grid[1] = static_cast<uint32_t>(y);
  step.grid[2] = 1;
  return x <= kMaxGridX && y <= kMaxGridY;
}

// Whether a step reads an operand whose rows have several strides.
bool reads_strided(const Step &step, const Plan &plan) {
  return plan.strided && std::any_of(step.params.begin(), step.params.end(), [&](const Param &param) {
           return param.kind == ParamKind::Stride && plan.exists(param.index) &&
                  plan.operands[param.index].row_dims > 1;
         });
}

bool plan_steps(Plan &plan) {
  const Alignment &alignment = plan.alternative->flat ? plan.flat_alignment : plan.row_alignment;
  int workspace = -1;
  int64_t groups = 0;
  for (const Step &step : plan.alternative->steps) {
    StepPlan &planned = plan.steps[plan.step_count++];
    planned.step = &step;
    planned.use = choose_use(step, plan, columns_of(plan, step), alignment);
    if (reads_strided(step, plan)) planned.use = &strided_use(*planned.use);
    else if (const Use *own = exact_use(*planned.use, columns_of(plan, step), plan.target.kernel_arch()))
      planned.use = own;
    const Variant &variant = *planned.use->variant;
    planned.aligned = alignment.allows(variant.exact == kOddRows ? chunk_of(plan) : variant.vec);
    planned.groups = 0;
    if (!plan_grid(plan, planned)) return false;
    if (step.family->kind != FamilyClass::Finish && step.family->sums > 0) {
      groups = planned.groups;
      workspace = plan.workspace_count++;
      plan.workspaces[workspace] = {groups, step.family->sums};
    }
    planned.workspace = workspace;
    planned.groups = groups;
  }
  return true;
}

} // namespace

const char *refusal(const Plan &plan, const Alternative &alternative) {
  if (plan.target.arch < alternative.min_arch) return "it needs a newer architecture";
  if (alternative.flat && !plan.flat) return "the operands do not share one dense layout";
  int64_t n = alternative.flat ? plan.numel : plan.N;
  if (alternative.limited && n > alternative.limit[index_of(plan.x)]) return "N is above its limit for this dtype";
  if (alternative.when == When::Chunks && n % chunk_of(plan)) return "N is no whole number of 16-byte chunks";
  for (const Step &step : alternative.steps) {
    bool wide = step.family->kind == FamilyClass::Flat || step.family->kind == FamilyClass::Loop ||
                step.family->kind == FamilyClass::Runs || step.family->kind == FamilyClass::Finish;
    if (!wide && n > INT32_MAX) return "N does not fit 32 bits";
    if (step.uses[index_of(plan.x)][index_of(plan.w)].empty()) return "it has no variant for these dtypes";
    int64_t own = alternative.flat ? n : columns_of(plan, step);
    if (!choose_use(step, plan, own, alternative.flat ? plan.flat_alignment : plan.row_alignment))
      return "it has no variant for this N";
  }
  return nullptr;
}

void plan_cuda(Plan &plan) {
  const auto &alternatives = plan.chosen->cuda;
  plan.outcome = Outcome::Cuda;
  choose_dtypes(plan);
  plan_casts(plan);
  plan.flat = is_flat(plan);
  if (plan.op->rule == Rule::Flat) choose_columns(plan);
  plan.row_alignment = alignment_of(plan, false);
  plan.flat_alignment = alignment_of(plan, true);

  auto choose = [&] {
    for (size_t i = 0; i < alternatives.size() && !plan.alternative; ++i)
      if (!refusal(plan, alternatives[i])) {
        plan.alternative = &alternatives[i];
        plan.alternative_index = static_cast<int>(i);
      }
  };
  choose();
  bool any_flat = std::any_of(alternatives.begin(), alternatives.end(), [](auto &one) { return one.flat; });
  if (!plan.alternative && any_flat && !plan.flat) {
    make_flat(plan);
    plan.flat_alignment = alignment_of(plan, true);
    choose();
  }
  if (!plan.alternative) {
    plan.outcome = Outcome::Definition;
    plan.reason = "no CUDA kernel for this size, dtype and architecture";
    return;
  }
  if (plan.alternative->flat) {
    plan.M = 1;
    plan.N = plan.numel;
    for_each(plan, Span::MN, [&](Operand &operand) {
      operand.col_stride = 1;
      operand.row_strides[0] = plan.N;
      operand.row_dims = 1;
    });
  } else {
    plan.flat = false;
    make_two_dimensional(plan);
  }
  if (!plan_steps(plan)) {
    plan.outcome = Outcome::Definition;
    plan.reason = "the grid would be too large";
  }
}

} // namespace avo

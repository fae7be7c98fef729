// What a call will do, chosen before anything is allocated. plan_call is pure: it reads the operator table,
// the arguments and the target, and writes a Plan; execution and explanation both start from that.
#pragma once

#include <string>

#include "../common/row_strides.h"
#include "arguments.h"

namespace avo {

struct Target {
  bool cuda = false;
  bool emulated = false; // a GPU that is imagined: tensors are on the CPU
  int device = 0;        // index
  int arch = 0;          // 90 for compute capability 9.0
  int sms = 0;
  bool strided = true; // there may be kernels for operands whose rows have several strides

  bool has_cuda_memory() const { return cuda && !emulated; }
  int kernel_arch() const { return emulated ? 0 : arch; } // as kernels are asked for
};

enum class Outcome : uint8_t {
  Nothing, // no result is wanted
  Empty,   // no element to compute: allocate, zero the column sums
  Cpu,
  Cuda,
  Definition, // plain torch math; `reason` says why
};

struct Operand {
  bool present;
  bool packed;     // kernels see its parts
  bool repeated;   // CUDA: one number for all rows (span M)
  bool copy, cast; // goes through a temporary: its layout, its dtype is not what the kernel takes
  Span span;
  Dtype declared;   // dtype of the argument, or that the return must have
  Dtype dtype;      // dtype that the kernel sees
  const void *data; // of a part of a return: the offset in bytes
  int64_t offset;   // of a part in its whole, in elements
  int32_t ndim;
  const int64_t *sizes;
  const int64_t *strides;      // span MN and M: in the dims of the plan; span N: in the column dims
  const int64_t *temp_strides; // of the temporary, where copy or cast
  int64_t col_stride;
  int64_t run_stride; // CPU, rule groups, span MN: from run to run, or 0 where columns have one stride
  // On the CPU of row_sizes of the plan. On CUDA of its own: row_dims of them, a result has one.
  int64_t row_strides[AVO_MAX_ROW_DIMS];
  int row_dims;
  int64_t row_sizes[kMaxStrides];

  const int64_t *kernel_strides() const { return copy || cast ? temp_strides : strides; }
};

struct StepPlan {
  const Step *step;
  const Use *use;
  uint32_t grid[3];
  bool aligned;
  int workspace;  // of the partials that it writes or reads; -1
  int64_t groups; // partial rows in it
};

// The bits that must be clear for 16-byte accesses: those of pointers (temporaries and results are aligned),
// and of N and the row strides, which must be multiples of the vector width.
struct Alignment {
  uintptr_t pointers = 0;
  int64_t extents = 0;
  bool allows(int vec) const { return (pointers & 15) == 0 && (extents & (vec - 1)) == 0; }
};

struct Workspace {
  int64_t groups, sums;
};

struct Plan {
  const Op *op;
  const Case *chosen;
  Target target;
  Outcome outcome;
  const char *reason;

  Dtype compute;
  int ndim; // the shape of the primary, or what it and the other MN arguments broadcast to; rule groups: split_sizes
  const int64_t *sizes;
  int64_t numel;
  int order[kMaxDims]; // of the dims: rows, then columns
  int column_begin;    // order[column_begin ...] are the columns (rule flat: those merged into N)
  int64_t M, N;
  int64_t sum_columns; // values of an N operand: N, or rule groups: the channels
  bool flat;           // all MN operands share one dense layout
  int row_dims;
  int64_t row_sizes[AVO_MAX_ROW_DIMS];
  Operand operands[kMaxOperands + 1]; // arguments, then returns; the last is kAbsent

  // CUDA
  const Alternative *alternative;
  int alternative_index;
  Dtype x, w;
  Alignment row_alignment, flat_alignment;
  bool strided; // kernels read operands whose rows have several strides
  int step_count, workspace_count;
  StepPlan steps[kMaxSteps];
  Workspace workspaces[kMaxSteps];

  // Layouts that operands point into.
  const int64_t *column_sizes;
  int column_ndim;
  int64_t column_size; // rule dim
  int64_t contiguous[kMaxDims], normal[kMaxDims];
  int64_t common[kMaxDims];
  int packed_dim; // the dim along which parts lie, of an op that has any
  int64_t packed_sizes[kMaxDims], packed_strides[kMaxDims], packed_columns; // of a packed MN or N tensor
  int m_ndim;
  int64_t m_sizes[kMaxDims], m_strides[kMaxDims], n_strides[kMaxDims];
  // Rule groups: the shape of tensors, (samples, channels, ...), that of the plan, (samples, groups, channels of a
  // group,
  // ...), and the layout of the results.
  int whole_ndim;
  const int64_t *whole_sizes;
  int64_t whole_strides[kMaxDims], split_sizes[kMaxDims], split_strides[kMaxDims], channels;
  int64_t groups, runs, run; // a row has `runs` channels of `run` positions each
  int expanded_count;
  int64_t expanded[kMaxOperands][kMaxDims];

  // Whether kernels see the operand.
  bool exists(int operand) const { return operands[operand].present && !operands[operand].packed; }
  // Whether the plan has other dims than the tensor.
  bool splits(const Operand &operand) const { return op->rule == Rule::Groups && operand.span == Span::MN; }
};

// Rows and columns as the kernels of a step see them: those of sums over runs of columns have a row for each run.
inline int64_t columns_of(const Plan &plan, const Step &step) {
  if (step.family->kind == FamilyClass::Runs) return plan.run;
  return step.family->kind == FamilyClass::Finish ? plan.sum_columns : plan.N;
}
inline int64_t rows_of(const Plan &plan, const StepPlan &step) {
  return step.step->family->kind == FamilyClass::Runs ? plan.M * plan.runs : plan.M;
}

// The elements of a row that a 16-byte chunk holds.
inline int chunk_of(const Plan &plan) { return static_cast<int>(16 / size_of(plan.x)); }

// Throws std::runtime_error for arguments that the operator does not take.
void plan_call(const Op &op, const Arguments &args, const Target &target, Plan &plan);

// The parts of plan_call that belong to one kind of device.
void plan_cpu(Plan &plan);
void plan_cuda(Plan &plan);

// Why an alternative does not serve the planned call, or null. plan_cuda takes the first without a reason.
const char *refusal(const Plan &plan, const Alternative &alternative);

// The scalars of a call as doubles.
double scalar_value(const Plan &plan, const Arguments &args, int arg);

} // namespace avo

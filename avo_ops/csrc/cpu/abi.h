// The ABI between the host runtime and the generated CPU kernels: plain C structs, no other header.
//
// A call is an iteration space of M rows by N columns. A row number r is a mixed-radix number over the row
// dimensions, outermost first: the last of `row_sizes` runs fastest. Element (r, c) of an operand lies at
//   data + col_stride * c + sum over i of row_strides[i] * digit_i(r)     (all strides in elements),
// or, where it has run columns that lie apart, at col_stride * (c % run) + run_stride * (c / run) in place of the
// first. A span-N operand has row strides 0, a span-M operand a column stride 0, an operand that is not there (an
// optional argument, a result that nobody wants) has data == nullptr.
#ifndef AVO_OPS_CSRC_CPU_ABI_H
#define AVO_OPS_CSRC_CPU_ABI_H

#include <stdint.h>

#define AVO_MAX_ROW_DIMS 8

// Dtype codes of AvoOperand::dtype.
#define AVO_F32 0
#define AVO_F16 1
#define AVO_BF16 2
#define AVO_F64 3
#define AVO_I64 4 // whole numbers; beside I32 the one that span-M operands have
#define AVO_I32 5
#define AVO_F8 6 // e4m3, of span-MN operands alone, as those that follow
#define AVO_I8 7
#define AVO_U8 8
#define AVO_I16 9
#define AVO_B8 10 // bool

// Columns that a kernel of class pointwise stages at a time, rows that one of class row does at most, and the slack of
// every row of a buffer.
#define AVO_POINTWISE_BLOCK 512
#define AVO_PANEL_ROWS 16
#define AVO_BUFFER_SLACK 32

#ifdef __cplusplus
extern "C" {
#endif

typedef struct AvoOperand {
  void *data;
  int32_t dtype;
  int32_t panelled; // class row: neighbouring rows lie nearer than neighbouring columns: brought panel_rows at a time
  int64_t col_stride;
  int64_t run, run_stride; // run 0: all columns have one stride
  int64_t row_strides[AVO_MAX_ROW_DIMS];
} AvoOperand;

typedef struct AvoCpuArgs {
  const AvoOperand *operands;
  const double *scalars;
  int64_t M, N;
  int32_t row_dims;   // at least 1
  int32_t panel_rows; // 1 where no operand is panelled; a row buffer of class row has room for so many rows
  int64_t row_sizes[AVO_MAX_ROW_DIMS];
  // Where runs of columns share values of the span-N operands and sums: columns of a run, runs of a row, and rows after
  // which the values come again. A span-N operand then has row strides, and a column stride from run to run.
  int64_t run, runs, groups;
  int64_t sum_columns; // N, or groups * runs
  void *partials;      // compute dtype, [chunk][sum][sum_columns]; null when the kernel has no sums
} AvoCpuArgs;

// Class row: the column range is always [0, N). Class pointwise: any range. A kernel with sums zeroes the
// columns of its range in the partial rows of `chunk`, then accumulates into them.
typedef void (*AvoCpuKernel)(const AvoCpuArgs *a, int64_t row_begin, int64_t row_end, int64_t col_begin,
                             int64_t col_end, int64_t chunk, void *scratch);

// Sums partials[chunk][k] over the chunks in ascending order and writes them to `out`, cast to its dtype.
typedef void (*AvoCpuFinish)(const AvoCpuArgs *a, int64_t chunks, int64_t sums, int64_t k, const AvoOperand *out,
                             int64_t col_begin, int64_t col_end, int compute_is_f64);

typedef struct AvoKernelEntry {
  const char *name;
  AvoCpuKernel f32;
  AvoCpuKernel f64;
} AvoKernelEntry;

// Exported once per instruction set, as avo_cpu_kernels_base, _v3, _v4 and avo_cpu_finish_base, _v3, _v4.
typedef const AvoKernelEntry *(*AvoCpuTable)(int *count);

#ifdef __cplusplus
}
#endif

#endif // AVO_OPS_CSRC_CPU_ABI_H

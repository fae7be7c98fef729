// The finish of column sums: avo_cpu_finish_<isa> of the ABI. Include it once in a library.
#pragma once

#include "rows.h"

namespace AVO_ISA_NAMESPACE {

// out[c] = the sum over the chunks, in ascending order, of partials[chunk][k][c]; cast once.
template <class C>
static void finish_sums(const AvoCpuArgs *a, int64_t chunks, int64_t sums, int64_t k, const AvoOperand &out,
                        int64_t col_begin, int64_t col_end) {
  constexpr int64_t block = 512;
  alignas(64) C total[block];
  for (int64_t c0 = col_begin; c0 < col_end; c0 += block) {
    const int64_t n = col_end - c0 < block ? col_end - c0 : block;
    sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA { part.store(total + c, Vec<C>(C(0))); });
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      const C *partial = partial_row<C>(a, chunk, sums, k) + c0;
      sweep<C>(0, n, [&](int64_t c, auto part) AVO_LAMBDA {
        part.store(total + c, part.load(total + c) + part.load(partial + c));
      });
    }
    stage_out(out, c0 * out.col_stride, total, n);
  }
}

extern "C" void AVO_PASTE(avo_cpu_finish_, AVO_ISA_SUFFIX)(const AvoCpuArgs *a, int64_t chunks, int64_t sums, int64_t k,
                                                           const AvoOperand *out, int64_t col_begin, int64_t col_end,
                                                           int compute_is_f64) {
  if (!out->data) return;
  if (compute_is_f64) {
    finish_sums<double>(a, chunks, sums, k, *out, col_begin, col_end);
  } else {
    finish_sums<float>(a, chunks, sums, k, *out, col_begin, col_end);
  }
}

} // namespace AVO_ISA_NAMESPACE

// avo::bias_dropout_add_rows_backward_bias_to_bias_finish: adds the partial sums of the blocks. Written by the generator from definitions/; do not edit.
// residual + dropout(x + bias); dropout(x) = x / (1 - p) where Philox(seed of the row, column) >= p, else 0
// Source: Srivastava et al., Dropout, JMLR 15 (2014), 1929-1958; Salmon et al., Parallel random numbers: as
//   easy as 1, 2, 3, SC 2011 (Philox4x32-10)
#include "device/avo.cuh"

namespace avo {

template <class C, class W, int kBlock>
AVO_INLINE void bias_dropout_add_rows_backward_bias_to_bias_finish(
    const C* __restrict__ partials, int groups, int64_t N, W* __restrict__ grad_bias_ptr) {
  const int64_t column = int64_t(blockIdx.x) * 32 + threadIdx.x % 32;
  const bool exists = column < N;
  wait_for_previous_kernel();
  W* const out = grad_bias_ptr;
  if (!out) return;
  const C total = finish_column<kBlock>(partials + blockIdx.y * N, groups, 1 * N, column, exists);
  if (exists && threadIdx.x < 32) out[column] = narrow<W>(total);
}

} // namespace avo

#define AVO_KERNEL(NAME, BLOCK, C, W) \
  extern "C" __global__ void __launch_bounds__(BLOCK) NAME( \
      const avo::C* __restrict__ partials, int groups, int64_t N, avo::W* __restrict__ grad_bias_ptr) { \
    avo::bias_dropout_add_rows_backward_bias_to_bias_finish<avo::C, avo::W, BLOCK>(partials, groups, N, grad_bias_ptr); \
  }

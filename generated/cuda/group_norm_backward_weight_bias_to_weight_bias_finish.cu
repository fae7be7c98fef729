// Generated, do not edit. avo::group_norm_backward_weight_bias_to_weight_bias_finish: finish kernel; formula: group_norm_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION group_norm_backward_weight_bias_to_weight_bias_finish
#define AVO_ARGUMENTS partials, groups, N, grad_weight_ptr, grad_bias_ptr
#define AVO_PARAMETERS(C, W, ...) \
  const C* __restrict__ partials, int groups, int64_t N, W* __restrict__ grad_weight_ptr, \
  W* __restrict__ grad_bias_ptr

namespace avo {

// Adds the partial sums of the blocks.
template <int kBlock, class C, class W>
AVO_INLINE void group_norm_backward_weight_bias_to_weight_bias_finish(AVO_PARAMETERS(C, W, )) {
  const int64_t column = int64_t(blockIdx.x) * 32 + threadIdx.x % 32;
  const bool exists = column < N;
  wait_for_previous_kernel();
  W* const out = blockIdx.y == 0 ? grad_weight_ptr : grad_bias_ptr;
  if (!out) return;
  const C total = finish_column<kBlock>(partials + blockIdx.y * N, groups, 2 * N, column, exists);
  if (exists && threadIdx.x < 32) out[column] = narrow<W>(total);
}

} // namespace avo

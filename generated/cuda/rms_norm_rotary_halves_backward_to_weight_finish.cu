// Generated, do not edit. avo::rms_norm_rotary_halves_backward_to_weight_finish: finish kernel; formula: rms_norm_rotary_halves_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION rms_norm_rotary_halves_backward_to_weight_finish
#define AVO_ARGUMENTS partials, groups, N, grad_first_weight_ptr, grad_second_weight_ptr
#define AVO_PARAMETERS(C, W, ...) \
  const C* __restrict__ partials, int groups, int64_t N, W* __restrict__ grad_first_weight_ptr, \
  W* __restrict__ grad_second_weight_ptr

namespace avo {

// Adds the partial sums of the blocks.
template <int kBlock, class C, class W>
AVO_INLINE void rms_norm_rotary_halves_backward_to_weight_finish(AVO_PARAMETERS(C, W, )) {
  const int64_t column = int64_t(blockIdx.x) * 32 + threadIdx.x % 32;
  const bool exists = column < N;
  wait_for_previous_kernel();
  W* const out = blockIdx.y == 0 ? grad_first_weight_ptr : grad_second_weight_ptr;
  if (!out) return;
  const C total = finish_column<kBlock>(partials + blockIdx.y * N, groups, 2 * N, column, exists);
  if (exists && threadIdx.x < 32) out[column] = narrow<W>(total);
}

} // namespace avo

// Generated, do not edit. avo::bias_swiglu_packed_backward_to_bias_finish: finish kernel; formula: bias_swiglu_packed_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION bias_swiglu_packed_backward_to_bias_finish
#define AVO_ARGUMENTS partials, groups, N, grad_gate_bias_ptr, grad_up_bias_ptr
#define AVO_PARAMETERS(C, W, ...) \
  const C* __restrict__ partials, int groups, int64_t N, W* __restrict__ grad_gate_bias_ptr, \
  W* __restrict__ grad_up_bias_ptr

namespace avo {

// Adds the partial sums of the blocks.
template <int kBlock, class C, class W>
AVO_INLINE void bias_swiglu_packed_backward_to_bias_finish(AVO_PARAMETERS(C, W, )) {
  const int64_t column = int64_t(blockIdx.x) * 32 + threadIdx.x % 32;
  const bool exists = column < N;
  wait_for_previous_kernel();
  W* const out = blockIdx.y == 0 ? grad_gate_bias_ptr : grad_up_bias_ptr;
  if (!out) return;
  const C total = finish_column<kBlock>(partials + blockIdx.y * N, groups, 2 * N, column, exists);
  if (exists && threadIdx.x < 32) out[column] = narrow<W>(total);
}

} // namespace avo

// avo::gated_rms_norm_backward_to_weight_finish: adds the partial sums of the blocks. Written by the generator from definitions/; do not edit.
// rms_norm(x) * silu(gate), or rms_norm(x * silu(gate)) where the order is 'gate_first'
// Source: Dao and Gu, Transformers are SSMs, arXiv:2405.21060, and its published code (RMSNormGated)
#include "device/avo.cuh"

namespace avo {

template <class C, class W, int kBlock>
AVO_INLINE void gated_rms_norm_backward_to_weight_finish(
    const C* __restrict__ partials, int groups, int64_t N, W* __restrict__ grad_weight_ptr) {
  const int64_t column = int64_t(blockIdx.x) * 32 + threadIdx.x % 32;
  const bool exists = column < N;
  wait_for_previous_kernel();
  W* const out = grad_weight_ptr;
  if (!out) return;
  const C total = finish_column<kBlock>(partials + blockIdx.y * N, groups, 1 * N, column, exists);
  if (exists && threadIdx.x < 32) out[column] = narrow<W>(total);
}

} // namespace avo

#define AVO_KERNEL(NAME, BLOCK, C, W) \
  extern "C" __global__ void __launch_bounds__(BLOCK) NAME( \
      const avo::C* __restrict__ partials, int groups, int64_t N, avo::W* __restrict__ grad_weight_ptr) { \
    avo::gated_rms_norm_backward_to_weight_finish<avo::C, avo::W, BLOCK>(partials, groups, N, grad_weight_ptr); \
  }

// avo::bias_swiglu_packed_backward_to_bias_finish: adds the partial sums of the blocks. Written by the generator from definitions/; do not edit.
// gate * sigmoid(gate) * up; gate, up = the halves of the last dim of x + bias
// Source: Shazeer, GLU Variants Improve Transformer, arXiv:2002.05202
#include "device/avo.cuh"

namespace avo {

template <class C, class W, int kBlock>
AVO_INLINE void bias_swiglu_packed_backward_to_bias_finish(
    const C* __restrict__ partials, int groups, int64_t N, W* __restrict__ grad_gate_bias_ptr,
    W* __restrict__ grad_up_bias_ptr) {
  const int64_t column = int64_t(blockIdx.x) * 32 + threadIdx.x % 32;
  const bool exists = column < N;
  wait_for_previous_kernel();
  W* const out = blockIdx.y == 0 ? grad_gate_bias_ptr : grad_up_bias_ptr;
  if (!out) return;
  const C total = finish_column<kBlock>(partials + blockIdx.y * N, groups, 2 * N, column, exists);
  if (exists && threadIdx.x < 32) out[column] = narrow<W>(total);
}

} // namespace avo

#define AVO_KERNEL(NAME, BLOCK, C, W) \
  extern "C" __global__ void __launch_bounds__(BLOCK) NAME( \
      const avo::C* __restrict__ partials, int groups, int64_t N, avo::W* __restrict__ grad_gate_bias_ptr, \
      avo::W* __restrict__ grad_up_bias_ptr) { \
    avo::bias_swiglu_packed_backward_to_bias_finish<avo::C, avo::W, BLOCK>(partials, groups, N, grad_gate_bias_ptr, grad_up_bias_ptr); \
  }

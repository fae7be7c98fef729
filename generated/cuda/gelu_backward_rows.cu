// avo::gelu_backward_rows: pointwise kernel. Written by the generator from definitions/; do not edit.
// x * Phi(x) = x/2 * erfc(-x/sqrt(2)); 'tanh': x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))
// Source: Hendrycks and Gimpel, Gaussian Error Linear Units, arXiv:1606.08415
#include "device/avo.cuh"

namespace avo {

template <class X, int kBlock, int T, int P, int kN>
AVO_INLINE void gelu_backward_rows(
    const X* __restrict__ x_ptr, int64_t x_stride, const X* __restrict__ grad_ptr, int64_t grad_stride,
    X* __restrict__ grad_x_ptr, int64_t grad_x_stride, int64_t M, int64_t N) {
  using C = compute_t<X>;
  constexpr int V = kVector<X>;
  constexpr int R = kBlock / T; // rows of a block
  const RowTile<T, P, V, kN> tile(int(blockIdx.y) * (T * P * V), N);
  const int64_t step = int64_t(gridDim.x) * R;
  const int64_t first = int64_t(blockIdx.x) * R;
  const int own = int(threadIdx.x) / T; // which of the block's rows
  for (int64_t base = first; base < M; base += step) {
    const int64_t row = base + own;
    const bool live = row < M;
    Vec<X, V> x_vec[P];
    if (live)
      tile.load(x_vec, x_ptr + row * x_stride);
    else
      clear(x_vec);
    Vec<X, V> grad_vec[P];
    if (live)
      tile.load(grad_vec, grad_ptr + row * grad_stride);
    else
      clear(grad_vec);
#pragma unroll
    for (int p = 0; p < P; ++p) {
      C grad_x_out[V];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const C t1 = x_vec[p][j] * C(-0.7071067811865476);
        const C t2 = m_exp_neg_sq(t1);
        grad_x_out[j] = m_fma(C(0.5), m_erfc(t1, t2) * grad_vec[p][j], t2 * C(0.7978845608028654) * (x_vec[p][j] * C(0.5) * grad_vec[p][j]));
      }
      tile.store(grad_x_ptr + row * grad_x_stride, p, grad_x_out, live);
    }
  }
}

} // namespace avo

#define AVO_KERNEL(NAME, BLOCK, MIN_BLOCKS, X, T, P, N_) \
  extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS) NAME( \
      const avo::X* __restrict__ x_ptr, int64_t x_stride, const avo::X* __restrict__ grad_ptr, \
      int64_t grad_stride, avo::X* __restrict__ grad_x_ptr, int64_t grad_x_stride, int64_t M, int64_t N) { \
    avo::gelu_backward_rows<avo::X, BLOCK, T, P, N_>(x_ptr, x_stride, grad_ptr, grad_stride, grad_x_ptr, grad_x_stride, M, N); \
  }

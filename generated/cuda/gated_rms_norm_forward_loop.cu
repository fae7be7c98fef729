// avo::gated_rms_norm_forward_loop: loop kernel. Written by the generator from definitions/; do not edit.
// rms_norm(x) * silu(gate), or rms_norm(x * silu(gate)) where the order is 'gate_first'
// Source: Dao and Gu, Transformers are SSMs, arXiv:2405.21060, and its published code (RMSNormGated)
#include "device/avo.cuh"

namespace avo {

template <class X, class W, int kBlock, int T, int P, int kN, bool kAhead>
AVO_INLINE void gated_rms_norm_forward_loop(
    const X* __restrict__ x_ptr, int64_t x_stride, const X* __restrict__ gate_ptr, int64_t gate_stride,
    const W* __restrict__ weight_ptr, X* __restrict__ y_ptr, int64_t y_stride,
    compute_t<X>* __restrict__ rstd_ptr, compute_t<X> eps, int64_t M, int64_t N) {
  using C = compute_t<X>;
  using A = accuracy_t<X, W>;
  constexpr int V = kVector<X>;
  constexpr int R = kBlock / T; // rows of a block
  const int thread = thread_of_row<T, kBlock>();
  __shared__ RowScratch<C, kBlock, T, 1> scratch;
  int turn = 0;
  const int64_t step = int64_t(gridDim.x) * R;
  const int64_t first = int64_t(blockIdx.x) * R;
  const int own = int(threadIdx.x) / T; // which of the block's rows
  for (int64_t base = first; base < M; base += step) {
    const int64_t row = base + own;
    const bool live = row < M;
    C t1 = C(0);
    for (int64_t column = 0; column < N; column += T * V) {
      const RowTile<T, P, V, kN, int64_t> tile(thread, column, N);
      Vec<X, V> x_vec[P];
      if (live)
        tile.load(x_vec, x_ptr + row * x_stride);
      else
        clear(x_vec);
      tile.each([&](int p, int j) {
        t1 += x_vec[p][j] * x_vec[p][j];
      });
    }
    row_reduce<Sum, T, kBlock>(scratch, turn, t1);
    const C rstd = m_rsqrt(eps + t1 / C(N));
    if (live && thread == 0 && rstd_ptr) rstd_ptr[row] = rstd;
    for (int64_t column = 0; column < N; column += T * V) {
      const RowTile<T, P, V, kN, int64_t> tile(thread, column, N);
      constexpr int p = 0;
      Vec<X, V> x_vec[P];
      if (live)
        tile.load(x_vec, x_ptr + row * x_stride);
      else
        clear(x_vec);
      Vec<X, V> gate_vec[P];
      if (live)
        tile.load(gate_vec, gate_ptr + row * gate_stride);
      else
        clear(gate_vec);
      Vec<W, V> weight_vec[1];
      tile.load_columns(weight_vec, weight_ptr);
      C y_out[V];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const C y = x_vec[p][j] * rstd;
        const C y_ = weight_vec[p][j] * y;
        y_out[j] = y_ * m_x_sigmoid<A>(gate_vec[p][j]);
      }
      tile.store(y_ptr + row * y_stride, p, y_out, live);
    }
  }
}

} // namespace avo

#define AVO_KERNEL(NAME, BLOCK, MIN_BLOCKS, X, W, T, P, N_, AHEAD) \
  extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS) NAME( \
      const avo::X* __restrict__ x_ptr, int64_t x_stride, const avo::X* __restrict__ gate_ptr, \
      int64_t gate_stride, const avo::W* __restrict__ weight_ptr, avo::X* __restrict__ y_ptr, \
      int64_t y_stride, avo::compute_t<avo::X>* __restrict__ rstd_ptr, avo::compute_t<avo::X> eps, \
      int64_t M, int64_t N) { \
    avo::gated_rms_norm_forward_loop<avo::X, avo::W, BLOCK, T, P, N_, AHEAD>(x_ptr, x_stride, gate_ptr, gate_stride, weight_ptr, y_ptr, y_stride, rstd_ptr, eps, M, N); \
  }

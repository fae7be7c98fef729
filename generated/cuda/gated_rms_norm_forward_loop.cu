// Generated, do not edit. avo::gated_rms_norm_forward_loop: loop kernel; formula: gated_rms_norm_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION gated_rms_norm_forward_loop
#define AVO_ARGUMENTS x_ptr, x_stride, gate_ptr, gate_stride, weight_ptr, y_ptr, y_stride, rstd_ptr, eps, M, N
#define AVO_PARAMETERS(X, W, ...) \
  const X* __restrict__ x_ptr, int64_t x_stride, const X* __restrict__ gate_ptr, int64_t gate_stride, \
  const W* __restrict__ weight_ptr, X* __restrict__ y_ptr, int64_t y_stride, \
  compute_t<X>* __restrict__ rstd_ptr, compute_t<X> eps, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, class W, int T, int P, int kN, bool kAhead>
AVO_INLINE void gated_rms_norm_forward_loop(AVO_PARAMETERS(X, W, T)) {
  using C = compute_t<X>;
  using A = accuracy_t<X, W>;
  constexpr int V = kVector<X>;
  const int thread = thread_of_row<T, kBlock>();
  __shared__ RowScratch<C, kBlock, T, 1> scratch;
  int turn = 0;
  const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
  for (int64_t base = rows.first; base < M; base += rows.step) {
    const int64_t row = base + rows.own;
    const bool live = row < M;
    RowSum<C, V> t1;
    for (int64_t column = 0; column < N; column += T * P * V) {
      const RowTile<T, P, V, kN, int64_t> tile(thread, column, N);
      Vec<X, V> x_vec[P];
      if (live)
        tile.load(x_vec, x_ptr + row * x_stride);
      else
        clear(x_vec);
      tile.each([&](int p, int j, bool whole) {
        t1.add_product(x_vec[p][j], x_vec[p][j], j, whole);
      });
    }
    row_reduce<Sum, T, kBlock>(scratch, turn, t1.total);
    const C rstd = m_rsqrt(eps + t1.total / C(N));
    if (live && thread == 0 && rstd_ptr) rstd_ptr[row] = rstd;
    for (int64_t column = 0; column < N; column += T * P * V) {
      const RowTile<T, P, V, kN, int64_t> tile(thread, column, N);
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
      Vec<W, V> weight_vec[P];
      tile.load_columns(weight_vec, weight_ptr);
#pragma unroll
      for (int p = 0; p < P; ++p) {
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
}

} // namespace avo

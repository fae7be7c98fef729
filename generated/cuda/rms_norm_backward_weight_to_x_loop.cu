// Generated, do not edit. avo::rms_norm_backward_weight_to_x_loop: loop kernel; formula: rms_norm_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION rms_norm_backward_weight_to_x_loop
#define AVO_ARGUMENTS x_ptr, x_stride, grad_ptr, grad_stride, weight_ptr, rstd_ptr, grad_x_ptr, grad_x_stride, M, N
#define AVO_PARAMETERS(X, W, ...) \
  const X* __restrict__ x_ptr, int64_t x_stride, const X* __restrict__ grad_ptr, int64_t grad_stride, \
  const W* __restrict__ weight_ptr, const compute_t<X>* __restrict__ rstd_ptr, X* __restrict__ grad_x_ptr, \
  int64_t grad_x_stride, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, class W, int T, int P, int kN, bool kAhead>
AVO_INLINE void rms_norm_backward_weight_to_x_loop(AVO_PARAMETERS(X, W, T)) {
  using C = compute_t<X>;
  constexpr int V = kVector<X>;
  const int thread = thread_of_row<T, kBlock>();
  __shared__ RowScratch<C, kBlock, T, 1> scratch;
  int turn = 0;
  const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
  for (int64_t base = rows.first; base < M; base += rows.step) {
    const int64_t row = base + rows.own;
    const bool live = row < M;
    const C rstd = live ? rstd_ptr[row] : C(0);
    RowSum<C, V> t1;
    for (int64_t column = 0; column < N; column += T * P * V) {
      const RowTile<T, P, V, kN, int64_t> tile(thread, column, N);
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
      Vec<W, V> weight_vec[P];
      tile.load_columns(weight_vec, weight_ptr);
      tile.each([&](int p, int j, bool whole) {
        const C y = x_vec[p][j] * rstd;
        t1.add_product(y, weight_vec[p][j] * grad_vec[p][j], j, whole);
      });
    }
    row_reduce<Sum, T, kBlock>(scratch, turn, t1.total);
    const C t2 = rstd * (-t1.total / C(N));
    for (int64_t column = 0; column < N; column += T * P * V) {
      const RowTile<T, P, V, kN, int64_t> tile(thread, column, N);
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
      Vec<W, V> weight_vec[P];
      tile.load_columns(weight_vec, weight_ptr);
#pragma unroll
      for (int p = 0; p < P; ++p) {
        C grad_x_out[V];
#pragma unroll
        for (int j = 0; j < V; ++j) {
          const C y = x_vec[p][j] * rstd;
          grad_x_out[j] = m_fma(y, t2, rstd * (weight_vec[p][j] * grad_vec[p][j]));
        }
        tile.store(grad_x_ptr + row * grad_x_stride, p, grad_x_out, live);
      }
    }
  }
}

} // namespace avo

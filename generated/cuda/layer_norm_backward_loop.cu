// Generated, do not edit. avo::layer_norm_backward_loop: loop kernel; formula: layer_norm_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION layer_norm_backward_loop
#define AVO_ARGUMENTS grad_ptr, grad_stride, x_ptr, x_stride, rstd_ptr, mean_ptr, residue_ptr, grad_x_ptr, grad_x_stride, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ grad_ptr, int64_t grad_stride, const X* __restrict__ x_ptr, int64_t x_stride, \
  const compute_t<X>* __restrict__ rstd_ptr, const compute_t<X>* __restrict__ mean_ptr, \
  const compute_t<X>* __restrict__ residue_ptr, X* __restrict__ grad_x_ptr, int64_t grad_x_stride, int64_t M, \
  int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void layer_norm_backward_loop(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  constexpr int V = kVector<X>;
  const int thread = thread_of_row<T, kBlock>();
  __shared__ RowScratch<C, kBlock, T, 2> scratch;
  int turn = 0;
  const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
  for (int64_t base = rows.first; base < M; base += rows.step) {
    const int64_t row = base + rows.own;
    const bool live = row < M;
    const C rstd = live ? rstd_ptr[row] : C(0);
    const C mean = live ? mean_ptr[row] : C(0);
    const C residue = live ? residue_ptr[row] : C(0);
    RowSum<C, V> sum_grad;
    RowSum<C, V> t1;
    for (int64_t column = 0; column < N; column += T * P * V) {
      const RowTile<T, P, V, kN, int64_t> tile(thread, column, N);
      Vec<X, V> grad_vec[P];
      if (live)
        tile.load(grad_vec, grad_ptr + row * grad_stride);
      else
        clear(grad_vec);
      Vec<X, V> x_vec[P];
      if (live)
        tile.load(x_vec, x_ptr + row * x_stride);
      else
        clear(x_vec);
      tile.each([&](int p, int j, bool whole) {
        const C centred = x_vec[p][j] - mean;
        sum_grad.add(grad_vec[p][j], j, whole);
        t1.add_product(grad_vec[p][j], rstd * (centred - residue), j, whole);
      });
    }
    row_reduce<Sum, T, kBlock>(scratch, turn, sum_grad.total, t1.total);
    const C t2 = -(rstd * sum_grad.total) / C(N);
    const C t3 = rstd * (-t1.total / C(N));
    for (int64_t column = 0; column < N; column += T * P * V) {
      const RowTile<T, P, V, kN, int64_t> tile(thread, column, N);
      Vec<X, V> grad_vec[P];
      if (live)
        tile.load(grad_vec, grad_ptr + row * grad_stride);
      else
        clear(grad_vec);
      Vec<X, V> x_vec[P];
      if (live)
        tile.load(x_vec, x_ptr + row * x_stride);
      else
        clear(x_vec);
#pragma unroll
      for (int p = 0; p < P; ++p) {
        C grad_x_out[V];
#pragma unroll
        for (int j = 0; j < V; ++j) {
          const C centred = x_vec[p][j] - mean;
          grad_x_out[j] = t2 + m_fma(t3, rstd * centred, rstd * grad_vec[p][j]);
        }
        tile.store(grad_x_ptr + row * grad_x_stride, p, grad_x_out, live);
      }
    }
  }
}

} // namespace avo

// Generated, do not edit. avo::add_layer_norm_backward_loop: loop kernel; formula: add_layer_norm_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION add_layer_norm_backward_loop
#define AVO_ARGUMENTS grad_y_ptr, grad_y_stride, grad_residual_out_ptr, grad_residual_out_stride, residual_out_ptr, residual_out_stride, rstd_ptr, mean_ptr, residue_ptr, grad_x_ptr, grad_x_stride, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ grad_y_ptr, int64_t grad_y_stride, const X* __restrict__ grad_residual_out_ptr, \
  int64_t grad_residual_out_stride, const X* __restrict__ residual_out_ptr, int64_t residual_out_stride, \
  const compute_t<X>* __restrict__ rstd_ptr, const compute_t<X>* __restrict__ mean_ptr, \
  const compute_t<X>* __restrict__ residue_ptr, X* __restrict__ grad_x_ptr, int64_t grad_x_stride, int64_t M, \
  int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void add_layer_norm_backward_loop(AVO_PARAMETERS(X, T)) {
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
    RowSum<C, V> sum_grad_y;
    RowSum<C, V> t1;
    for (int64_t column = 0; column < N; column += T * P * V) {
      const RowTile<T, P, V, kN, int64_t> tile(thread, column, N);
      Vec<X, V> grad_y_vec[P];
      if (live)
        tile.load(grad_y_vec, grad_y_ptr + row * grad_y_stride);
      else
        clear(grad_y_vec);
      Vec<X, V> residual_out_vec[P];
      if (live)
        tile.load(residual_out_vec, residual_out_ptr + row * residual_out_stride);
      else
        clear(residual_out_vec);
      tile.each([&](int p, int j, bool whole) {
        const C centred = residual_out_vec[p][j] - mean;
        sum_grad_y.add(grad_y_vec[p][j], j, whole);
        t1.add_product(grad_y_vec[p][j], rstd * (centred - residue), j, whole);
      });
    }
    row_reduce<Sum, T, kBlock>(scratch, turn, sum_grad_y.total, t1.total);
    const C t2 = -(sum_grad_y.total * rstd) / C(N);
    const C t3 = rstd * (-t1.total / C(N));
    for (int64_t column = 0; column < N; column += T * P * V) {
      const RowTile<T, P, V, kN, int64_t> tile(thread, column, N);
      Vec<X, V> grad_y_vec[P];
      if (live)
        tile.load(grad_y_vec, grad_y_ptr + row * grad_y_stride);
      else
        clear(grad_y_vec);
      Vec<X, V> grad_residual_out_vec[P];
      if (live)
        tile.load(grad_residual_out_vec, grad_residual_out_ptr + row * grad_residual_out_stride);
      else
        clear(grad_residual_out_vec);
      Vec<X, V> residual_out_vec[P];
      if (live)
        tile.load(residual_out_vec, residual_out_ptr + row * residual_out_stride);
      else
        clear(residual_out_vec);
#pragma unroll
      for (int p = 0; p < P; ++p) {
        C grad_x_out[V];
#pragma unroll
        for (int j = 0; j < V; ++j) {
          const C centred = residual_out_vec[p][j] - mean;
          grad_x_out[j] = t2 + (grad_residual_out_vec[p][j] + m_fma(t3, rstd * centred, grad_y_vec[p][j] * rstd));
        }
        tile.store(grad_x_ptr + row * grad_x_stride, p, grad_x_out, live);
      }
    }
  }
}

} // namespace avo

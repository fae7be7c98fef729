// Generated, do not edit. avo::layer_norm_modulate_backward_loop: loop kernel; formula: layer_norm_modulate_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION layer_norm_modulate_backward_loop
#define AVO_ARGUMENTS scale_ptr, scale_stride, grad_ptr, grad_stride, x_ptr, x_stride, rstd_ptr, mean_ptr, residue_ptr, grad_x_ptr, grad_x_stride, grad_scale_ptr, grad_scale_stride, grad_shift_ptr, grad_shift_stride, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ scale_ptr, int64_t scale_stride, const X* __restrict__ grad_ptr, int64_t grad_stride, \
  const X* __restrict__ x_ptr, int64_t x_stride, const compute_t<X>* __restrict__ rstd_ptr, \
  const compute_t<X>* __restrict__ mean_ptr, const compute_t<X>* __restrict__ residue_ptr, \
  X* __restrict__ grad_x_ptr, int64_t grad_x_stride, X* __restrict__ grad_scale_ptr, int64_t grad_scale_stride, \
  X* __restrict__ grad_shift_ptr, int64_t grad_shift_stride, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void layer_norm_modulate_backward_loop(AVO_PARAMETERS(X, T)) {
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
    RowSum<C, V> t1;
    RowSum<C, V> t2;
    for (int64_t column = 0; column < N; column += T * P * V) {
      const RowTile<T, P, V, kN, int64_t> tile(thread, column, N);
      Vec<X, V> scale_vec[P];
      if (live)
        tile.load(scale_vec, scale_ptr + row * scale_stride);
      else
        clear(scale_vec);
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
        const C t3 = scale_vec[p][j] + C(1.0);
        const C centred = x_vec[p][j] - mean;
        const C y = rstd * (centred - residue);
        t1.add_product(t3, grad_vec[p][j], j, whole);
        t2.add_product(y, t3 * grad_vec[p][j], j, whole);
      });
    }
    row_reduce<Sum, T, kBlock>(scratch, turn, t1.total, t2.total);
    const C t3 = -(rstd * t1.total) / C(N);
    const C t4 = rstd * (-t2.total / C(N));
    for (int64_t column = 0; column < N; column += T * P * V) {
      const RowTile<T, P, V, kN, int64_t> tile(thread, column, N);
      Vec<X, V> scale_vec[P];
      if (live)
        tile.load(scale_vec, scale_ptr + row * scale_stride);
      else
        clear(scale_vec);
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
        C grad_scale_out[V];
        C grad_shift_out[V];
#pragma unroll
        for (int j = 0; j < V; ++j) {
          const C centred = x_vec[p][j] - mean;
          const C y = rstd * (centred - residue);
          grad_x_out[j] = t3 + m_fma(t4, rstd * centred, rstd * ((scale_vec[p][j] + C(1.0)) * grad_vec[p][j]));
          grad_scale_out[j] = y * grad_vec[p][j];
          grad_shift_out[j] = grad_vec[p][j];
        }
        tile.store(grad_x_ptr + row * grad_x_stride, p, grad_x_out, live);
        tile.store(grad_scale_ptr + row * grad_scale_stride, p, grad_scale_out, live);
        tile.store(grad_shift_ptr + row * grad_shift_stride, p, grad_shift_out, live);
      }
    }
  }
}

} // namespace avo

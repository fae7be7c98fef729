// Generated, do not edit. avo::softcap_softmax_backward_loop: loop kernel; formula: softcap_softmax_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION softcap_softmax_backward_loop
#define AVO_ARGUMENTS x_ptr, x_stride, grad_ptr, grad_stride, y_ptr, y_stride, statistic0_ptr, statistic1_ptr, grad_x_ptr, grad_x_stride, cap, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ x_ptr, int64_t x_stride, const X* __restrict__ grad_ptr, int64_t grad_stride, \
  const X* __restrict__ y_ptr, int64_t y_stride, const compute_t<X>* __restrict__ statistic0_ptr, \
  const compute_t<X>* __restrict__ statistic1_ptr, X* __restrict__ grad_x_ptr, int64_t grad_x_stride, \
  compute_t<X> cap, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void softcap_softmax_backward_loop(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  using A = accuracy_t<X>;
  constexpr int V = kVector<X>;
  const int thread = thread_of_row<T, kBlock>();
  __shared__ RowScratch<C, kBlock, T, 1> scratch;
  int turn = 0;
  const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
  for (int64_t base = rows.first; base < M; base += rows.step) {
    const int64_t row = base + rows.own;
    const bool live = row < M;
    const C statistic0 = live ? statistic0_ptr[row] : C(0);
    const C statistic1 = live ? statistic1_ptr[row] : C(0);
    const C t1 = m_recip(cap);
    const C t2 = -statistic0;
    RowSum<C, V> t3;
    for (int64_t column = 0; column < N; column += T * P * V) {
      const RowTile<T, P, V, kN, int64_t> tile(thread, column, N);
      Vec<X, V> grad_vec[P];
      if (live)
        tile.load(grad_vec, grad_ptr + row * grad_stride);
      else
        clear(grad_vec);
      Vec<X, V> y_vec[P];
      if (live)
        tile.load(y_vec, y_ptr + row * y_stride);
      else
        clear(y_vec);
      tile.each([&](int p, int j, bool whole) {
        t3.add_product(statistic1 * y_vec[p][j], -grad_vec[p][j], j, whole);
      });
    }
    row_reduce<Sum, T, kBlock>(scratch, turn, t3.total);
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
#pragma unroll
      for (int p = 0; p < P; ++p) {
        C grad_x_out[V];
#pragma unroll
        for (int j = 0; j < V; ++j) {
          const C t4 = m_tanh(m_quotient<A>(x_vec[p][j], cap, t1));
          const C shifted = m_exp<A>(m_fma(cap, t4, t2));
          grad_x_out[j] = m_quotient<A>(m_fma(-t4, t4, C(1.0)) * (cap * (shifted * m_fma(statistic1, grad_vec[p][j], t3.total))), cap, t1);
        }
        tile.store(grad_x_ptr + row * grad_x_stride, p, grad_x_out, live);
      }
    }
  }
}

} // namespace avo

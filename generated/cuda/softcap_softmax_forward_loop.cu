// Generated, do not edit. avo::softcap_softmax_forward_loop: loop kernel; formula: softcap_softmax_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION softcap_softmax_forward_loop
#define AVO_ARGUMENTS x_ptr, x_stride, y_ptr, y_stride, statistic0_ptr, statistic1_ptr, cap, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ x_ptr, int64_t x_stride, X* __restrict__ y_ptr, int64_t y_stride, \
  compute_t<X>* __restrict__ statistic0_ptr, compute_t<X>* __restrict__ statistic1_ptr, compute_t<X> cap, \
  int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void softcap_softmax_forward_loop(AVO_PARAMETERS(X, T)) {
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
    const C t1 = m_recip(cap);
    C t2 = lowest<C>();
    RowSum<C, V> sum_shifted;
    for (int64_t column = 0; column < N; column += T * P * V) {
      const RowTile<T, P, V, kN, int64_t> tile(thread, column, N);
      Vec<X, V> x_vec[P];
      if (live)
        tile.load(x_vec, x_ptr + row * x_stride);
      else
        clear(x_vec);
      const C t2_before = t2;
      tile.each([&](int p, int j, bool) {
        t2 = m_max(t2, cap * m_tanh(m_quotient<A>(x_vec[p][j], cap, t1)));
      });
      const C t2_here = t2 == lowest<C>() ? C(0) : t2;
      sum_shifted.total *= m_exp<A>(t2_before - t2_here);
      tile.each([&](int p, int j, bool whole) {
        const C shifted = m_exp_summand<A>(cap * m_tanh(m_quotient<A>(x_vec[p][j], cap, t1)) - t2_here);
        sum_shifted.add(shifted, j, whole);
      });
    }
    const C t2_here = t2;
    row_reduce<Max, T, kBlock>(scratch, turn, t2);
    sum_shifted.total *= m_exp<A>(t2_here - t2);
    row_reduce<Sum, T, kBlock>(scratch, turn, sum_shifted.total);
    const C t3 = m_recip(sum_shifted.total);
    if (live && thread == 0 && statistic0_ptr) statistic0_ptr[row] = t2;
    if (live && thread == 0 && statistic1_ptr) statistic1_ptr[row] = t3;
    for (int64_t column = 0; column < N; column += T * P * V) {
      const RowTile<T, P, V, kN, int64_t> tile(thread, column, N);
      Vec<X, V> x_vec[P];
      if (live)
        tile.load(x_vec, x_ptr + row * x_stride);
      else
        clear(x_vec);
#pragma unroll
      for (int p = 0; p < P; ++p) {
        C y_out[V];
#pragma unroll
        for (int j = 0; j < V; ++j) {
          const C shifted = m_exp<A>(cap * m_tanh(m_quotient<A>(x_vec[p][j], cap, t1)) - t2);
          y_out[j] = m_quotient<A>(shifted, sum_shifted.total, t3);
        }
        tile.store(y_ptr + row * y_stride, p, y_out, live);
      }
    }
  }
}

} // namespace avo

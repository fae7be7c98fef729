// Generated, do not edit. avo::softmax_forward_loop: loop kernel; formula: softmax_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION softmax_forward_loop
#define AVO_ARGUMENTS x_ptr, x_stride, y_ptr, y_stride, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ x_ptr, int64_t x_stride, X* __restrict__ y_ptr, int64_t y_stride, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void softmax_forward_loop(AVO_PARAMETERS(X, T)) {
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
    C max_x = lowest<C>();
    RowSum<C, V> sum_shifted;
    for (int64_t column = 0; column < N; column += T * P * V) {
      const RowTile<T, P, V, kN, int64_t> tile(thread, column, N);
      Vec<X, V> x_vec[P];
      if (live)
        tile.load(x_vec, x_ptr + row * x_stride);
      else
        clear(x_vec);
      const C max_x_before = max_x;
      extreme<Max>(tile, x_vec, max_x);
      const C max_x_here = max_x == lowest<C>() ? C(0) : max_x;
      sum_shifted.total *= m_exp<A>(max_x_before - max_x_here);
      tile.each([&](int p, int j, bool whole) {
        const C shifted = m_exp_summand<A>(x_vec[p][j] - max_x_here);
        sum_shifted.add(shifted, j, whole);
      });
    }
    const C max_x_here = max_x;
    row_reduce<Max, T, kBlock>(scratch, turn, max_x);
    sum_shifted.total *= m_exp<A>(max_x_here - max_x);
    row_reduce<Sum, T, kBlock>(scratch, turn, sum_shifted.total);
    const C t1 = m_recip(sum_shifted.total);
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
          const C shifted = m_exp<A>(x_vec[p][j] - max_x);
          y_out[j] = m_quotient<A>(shifted, sum_shifted.total, t1);
        }
        tile.store(y_ptr + row * y_stride, p, y_out, live);
      }
    }
  }
}

} // namespace avo

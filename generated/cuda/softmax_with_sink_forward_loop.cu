// Generated, do not edit. avo::softmax_with_sink_forward_loop: loop kernel; formula: softmax_with_sink_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION softmax_with_sink_forward_loop
#define AVO_ARGUMENTS x_ptr, x_stride, sink_ptr, y_ptr, y_stride, own_ptr, statistic1_ptr, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ x_ptr, int64_t x_stride, const compute_t<X>* __restrict__ sink_ptr, \
  X* __restrict__ y_ptr, int64_t y_stride, compute_t<X>* __restrict__ own_ptr, \
  compute_t<X>* __restrict__ statistic1_ptr, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void softmax_with_sink_forward_loop(AVO_PARAMETERS(X, T)) {
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
    const C sink = live ? sink_ptr[row] : C(0);
    C max_x = lowest<C>();
    for (int64_t column = 0; column < N; column += T * P * V) {
      const RowTile<T, P, V, kN, int64_t> tile(thread, column, N);
      Vec<X, V> x_vec[P];
      if (live)
        tile.load(x_vec, x_ptr + row * x_stride);
      else
        clear(x_vec);
      extreme<Max>(tile, x_vec, max_x);
    }
    row_reduce<Max, T, kBlock>(scratch, turn, max_x);
    const C largest = m_max(sink, max_x);
    const C t1 = m_exp<A>(sink - largest);
    RowSum<C, V> sum_shifted;
    for (int64_t column = 0; column < N; column += T * P * V) {
      const RowTile<T, P, V, kN, int64_t> tile(thread, column, N);
      Vec<X, V> x_vec[P];
      if (live)
        tile.load(x_vec, x_ptr + row * x_stride);
      else
        clear(x_vec);
      tile.each([&](int p, int j, bool whole) {
        const C shifted = m_exp<A>(x_vec[p][j] - largest);
        sum_shifted.add(shifted, j, whole);
      });
    }
    row_reduce<Sum, T, kBlock>(scratch, turn, sum_shifted.total);
    const C t2 = sum_shifted.total + t1;
    const C t3 = m_recip(t2);
    if (live && thread == 0 && own_ptr) own_ptr[row] = t1;
    if (live && thread == 0 && statistic1_ptr) statistic1_ptr[row] = t2;
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
          const C shifted = m_exp<A>(x_vec[p][j] - largest);
          y_out[j] = m_quotient<A>(shifted, t2, t3);
        }
        tile.store(y_ptr + row * y_stride, p, y_out, live);
      }
    }
  }
}

} // namespace avo

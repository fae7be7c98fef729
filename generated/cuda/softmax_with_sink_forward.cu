// Generated, do not edit. avo::softmax_with_sink_forward: row kernel
// exp(x - m) / (sum(exp(x - m)) + exp(sink - m)), m = max(x, sink); one sink for each row
// Source: OpenAI, gpt-oss-120b and gpt-oss-20b Model Card, arXiv:2508.10925; Xiao et al., arXiv:2309.17453
#include "device/avo.cuh"

#define AVO_FUNCTION softmax_with_sink_forward
#define AVO_ARGUMENTS x_ptr, x_stride, sink_ptr, y_ptr, y_stride, own_ptr, statistic1_ptr, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ x_ptr, int64_t x_stride, const compute_t<X>* __restrict__ sink_ptr, \
  X* __restrict__ y_ptr, int64_t y_stride, compute_t<X>* __restrict__ own_ptr, \
  compute_t<X>* __restrict__ statistic1_ptr, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead, int kParts = 1, bool kKeep = false>
AVO_INLINE void softmax_with_sink_forward(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  using A = accuracy_t<X>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const RowTile<T, P, V, kN> tile(thread, 0, N);
  __shared__ RowScratch<C, kBlock, T, 1, kParts> scratch;
  int turn = 0;
  announce_row<T, kBlock>();
  const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
  const auto fetch = [&](int64_t row, Vec<X, V> (&x_to)[P], C& sink_to) {
    if (row < M) {
      tile.load(x_to, x_ptr + row * x_stride);
      sink_to = sink_ptr[row];
    } else {
      clear(x_to);
      sink_to = C(0);
    }
  };
  Vec<X, V> x_next[P];
  C sink_next;
  if constexpr (kAhead) fetch(rows.first + rows.own, x_next, sink_next);
  for (int64_t base = rows.first; base < M; base += rows.step) {
    const int64_t row = base + rows.own;
    const bool live = row < M;
    Vec<X, V> x_vec[P];
    C sink;
    if constexpr (kAhead) {
      copy(x_vec, x_next);
      sink = sink_next;
      fetch(row + rows.step, x_next, sink_next);
    } else {
      fetch(row, x_vec, sink);
    }
    if (base == rows.first) await_row<T, kBlock>();
    C max_x = lowest<C>();
    extreme<Max>(tile, x_vec, max_x);
    row_reduce<Max, T, kBlock>(scratch, turn, max_x);
    hold_packed(x_vec);
    const C largest = m_max(sink, max_x);
    const C t1 = m_exp<A>(sink - largest);
    RowSum<C, V> sum_shifted;
    C shifted_kept[P][V] = {};
    tile.each([&](int p, int j, bool whole) {
      const C shifted = m_exp<A>(x_vec[p][j] - largest);
      if constexpr (kKeep) shifted_kept[p][j] = shifted;
      sum_shifted.add(shifted, j, whole);
    });
    row_reduce<Sum, T, kBlock>(scratch, turn, sum_shifted.total);
    hold_packed(x_vec);
    const C t2 = sum_shifted.total + t1;
    const C t3 = m_recip(t2);
    if (live && thread == 0 && own_ptr) own_ptr[row] = t1;
    if (live && thread == 0 && statistic1_ptr) statistic1_ptr[row] = t2;
#pragma unroll
    for (int p = 0; p < P; ++p) {
      if (!tile.reaches(p)) continue;
      C y_out[V];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const C shifted = kKeep ? shifted_kept[p][j] : m_exp<A>(x_vec[p][j] - largest);
        y_out[j] = m_quotient<A>(shifted, t2, t3);
      }
      tile.store(y_ptr + row * y_stride, p, y_out, live);
    }
  }
}

} // namespace avo

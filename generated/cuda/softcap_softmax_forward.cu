// Generated, do not edit. avo::softcap_softmax_forward: row kernel
// softmax(cap * tanh(x / cap))
// Source: Gemma Team, Gemma 2: Improving Open Language Models at a Practical Size, arXiv:2408.00118
#include "device/avo.cuh"

#define AVO_FUNCTION softcap_softmax_forward
#define AVO_ARGUMENTS x_ptr, x_stride, y_ptr, y_stride, statistic0_ptr, statistic1_ptr, cap, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ x_ptr, int64_t x_stride, X* __restrict__ y_ptr, int64_t y_stride, \
  compute_t<X>* __restrict__ statistic0_ptr, compute_t<X>* __restrict__ statistic1_ptr, compute_t<X> cap, \
  int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead, int kParts = 1, bool kKeep = false>
AVO_INLINE void softcap_softmax_forward(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  using A = accuracy_t<X>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const RowTile<T, P, V, kN> tile(thread, 0, N);
  __shared__ RowScratch<C, kBlock, T, 1, kParts> scratch;
  int turn = 0;
  announce_row<T, kBlock>();
  const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
  const auto fetch = [&](int64_t row, Vec<X, V> (&x_to)[P]) {
    if (row < M) {
      tile.load(x_to, x_ptr + row * x_stride);
    } else {
      clear(x_to);
    }
  };
  Vec<X, V> x_next[P];
  if constexpr (kAhead) fetch(rows.first + rows.own, x_next);
  for (int64_t base = rows.first; base < M; base += rows.step) {
    const int64_t row = base + rows.own;
    const bool live = row < M;
    Vec<X, V> x_vec[P];
    if constexpr (kAhead) {
      copy(x_vec, x_next);
      fetch(row + rows.step, x_next);
    } else {
      fetch(row, x_vec);
    }
    if (base == rows.first) await_row<T, kBlock>();
    const C t1 = m_recip(cap);
    C t2 = lowest<C>();
    C quotient_kept[P][V] = {};
    tile.each([&](int p, int j, bool) {
      const C t3 = m_quotient<A>(x_vec[p][j], cap, t1);
      if constexpr (kKeep) quotient_kept[p][j] = t3;
      t2 = m_max(t2, cap * m_tanh(t3));
    });
    row_reduce<Max, T, kBlock>(scratch, turn, t2);
    hold_packed(x_vec);
    RowSum<C, V> sum_shifted;
    C shifted_kept[P][V] = {};
    tile.each([&](int p, int j, bool whole) {
      const C t3 = kKeep ? quotient_kept[p][j] : m_quotient<A>(x_vec[p][j], cap, t1);
      const C shifted = m_exp_summand<A, kKeep>(cap * m_tanh(t3) - t2);
      if constexpr (kKeep) shifted_kept[p][j] = shifted;
      sum_shifted.add(shifted, j, whole);
    });
    row_reduce<Sum, T, kBlock>(scratch, turn, sum_shifted.total);
    hold_packed(x_vec);
    const C t3 = m_recip(sum_shifted.total);
    if (live && thread == 0 && statistic0_ptr) statistic0_ptr[row] = t2;
    if (live && thread == 0 && statistic1_ptr) statistic1_ptr[row] = t3;
#pragma unroll
    for (int p = 0; p < P; ++p) {
      if (!tile.reaches(p)) continue;
      C y_out[V];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const C t4 = kKeep ? quotient_kept[p][j] : m_quotient<A>(x_vec[p][j], cap, t1);
        const C shifted = kKeep ? shifted_kept[p][j] : m_exp<A>(cap * m_tanh(t4) - t2);
        y_out[j] = m_quotient<A>(shifted, sum_shifted.total, t3);
      }
      tile.store(y_ptr + row * y_stride, p, y_out, live);
    }
  }
}

} // namespace avo

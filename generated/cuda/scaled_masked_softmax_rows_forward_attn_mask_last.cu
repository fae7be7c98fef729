// Generated, do not edit. avo::scaled_masked_softmax_rows_forward_attn_mask_last: row kernel; formula: scaled_masked_softmax_rows_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION scaled_masked_softmax_rows_forward_attn_mask_last
#define AVO_ARGUMENTS x_ptr, x_stride, attn_mask_ptr, attn_mask_stride, last_ptr, y_ptr, y_stride, scale, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ x_ptr, int64_t x_stride, const X* __restrict__ attn_mask_ptr, int64_t attn_mask_stride, \
  const int64_t* __restrict__ last_ptr, X* __restrict__ y_ptr, int64_t y_stride, compute_t<X> scale, int64_t M, \
  int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead, int kParts = 1, bool kKeep = false>
AVO_INLINE void scaled_masked_softmax_rows_forward_attn_mask_last(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  using A = accuracy_t<X>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const RowTile<T, P, V, kN> tile(thread, 0, N);
  __shared__ RowScratch<C, kBlock, T, 1, kParts> scratch;
  int turn = 0;
  announce_row<T, kBlock>();
  const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
  const auto fetch = [&](int64_t row, Vec<X, V> (&x_to)[P], Vec<X, V> (&attn_mask_to)[P], int64_t& last_to) {
    if (row < M) {
      tile.load(x_to, x_ptr + row * x_stride);
      tile.load(attn_mask_to, attn_mask_ptr + row * attn_mask_stride);
      last_to = last_ptr[row];
    } else {
      clear(x_to, attn_mask_to);
      last_to = int64_t(0);
    }
  };
  Vec<X, V> x_next[P], attn_mask_next[P];
  int64_t last_next;
  if constexpr (kAhead) fetch(rows.first + rows.own, x_next, attn_mask_next, last_next);
  for (int64_t base = rows.first; base < M; base += rows.step) {
    const int64_t row = base + rows.own;
    const bool live = row < M;
    Vec<X, V> x_vec[P], attn_mask_vec[P];
    int64_t last;
    if constexpr (kAhead) {
      copy(x_vec, x_next);
      copy(attn_mask_vec, attn_mask_next);
      last = last_next;
      fetch(row + rows.step, x_next, attn_mask_next, last_next);
    } else {
      fetch(row, x_vec, attn_mask_vec, last);
    }
    if (base == rows.first) await_row<T, kBlock>();
    C max_score = lowest<C>();
    tile.each([&](int p, int j, bool) {
      const C score = m_fma(x_vec[p][j], scale, attn_mask_vec[p][j]);
      const C score_ = m_where(tile.at(p, j) <= tile.place(last), score, lowest<C>());
      max_score = m_max(max_score, score_);
    });
    row_reduce<Max, T, kBlock>(scratch, turn, max_score);
    hold_packed(x_vec, attn_mask_vec);
    RowSum<C, V> sum_shifted;
    C shifted_kept[P][V] = {};
    tile.each([&](int p, int j, bool whole) {
      const C score = m_fma(x_vec[p][j], scale, attn_mask_vec[p][j]);
      const C score_ = m_where(tile.at(p, j) <= tile.place(last), score, lowest<C>());
      const C shifted = m_exp_summand<A, kKeep>(score_ - max_score);
      if constexpr (kKeep) shifted_kept[p][j] = shifted;
      sum_shifted.add(shifted, j, whole);
    });
    row_reduce<Sum, T, kBlock>(scratch, turn, sum_shifted.total);
    hold_packed(x_vec, attn_mask_vec);
    const C t1 = m_recip(sum_shifted.total);
#pragma unroll
    for (int p = 0; p < P; ++p) {
      if (!tile.reaches(p)) continue;
      C y_out[V];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const C score = m_fma(x_vec[p][j], scale, attn_mask_vec[p][j]);
        const C score_ = m_where(tile.at(p, j) <= tile.place(last), score, lowest<C>());
        const C shifted = kKeep ? shifted_kept[p][j] : m_exp<A>(score_ - max_score);
        y_out[j] = m_quotient<A>(shifted, sum_shifted.total, t1);
      }
      tile.store(y_ptr + row * y_stride, p, y_out, live);
    }
  }
}

} // namespace avo

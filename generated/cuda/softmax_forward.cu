// Generated, do not edit. avo::softmax_forward: row kernel
// exp(x - max(x)) / sum(exp(x - max(x)))
// Source: Milakov and Gimelshein, Online normalizer calculation for softmax, arXiv:1805.02867 (the shifted
//   form)
#include "device/avo.cuh"

#define AVO_FUNCTION softmax_forward
#define AVO_ARGUMENTS x_ptr, x_stride, y_ptr, y_stride, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ x_ptr, int64_t x_stride, X* __restrict__ y_ptr, int64_t y_stride, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead, int kParts = 1, bool kKeep = false>
AVO_INLINE void softmax_forward(AVO_PARAMETERS(X, T)) {
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
    C max_x = lowest<C>();
    extreme<Max>(tile, x_vec, max_x);
    row_reduce<Max, T, kBlock>(scratch, turn, max_x);
    hold_packed(x_vec);
    RowSum<C, V> sum_shifted;
    C shifted_kept[P][V] = {};
    tile.each([&](int p, int j, bool whole) {
      const C shifted = m_exp_summand<A, kKeep>(x_vec[p][j] - max_x);
      if constexpr (kKeep) shifted_kept[p][j] = shifted;
      sum_shifted.add(shifted, j, whole);
    });
    row_reduce<Sum, T, kBlock>(scratch, turn, sum_shifted.total);
    hold_packed(x_vec);
    const C t1 = m_recip(sum_shifted.total);
#pragma unroll
    for (int p = 0; p < P; ++p) {
      if (!tile.reaches(p)) continue;
      C y_out[V];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const C shifted = kKeep ? shifted_kept[p][j] : m_exp<A>(x_vec[p][j] - max_x);
        y_out[j] = m_quotient<A>(shifted, sum_shifted.total, t1);
      }
      tile.store(y_ptr + row * y_stride, p, y_out, live);
    }
  }
}

} // namespace avo

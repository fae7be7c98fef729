// Generated, do not edit. avo::rotary_halves_forward: pointwise kernel
// a cos - b sin, b cos + a sin; a, b = the halves of the last dim of x, and of the result
// Source: Su et al., RoFormer: Enhanced Transformer with Rotary Position Embedding, arXiv:2104.09864
#include "device/avo.cuh"

#define AVO_FUNCTION rotary_halves_forward
#define AVO_ARGUMENTS second_ptr, second_stride, sin_ptr, sin_stride, first_ptr, first_stride, cos_ptr, cos_stride, turned_first_ptr, turned_first_stride, turned_second_ptr, turned_second_stride, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ second_ptr, int64_t second_stride, const X* __restrict__ sin_ptr, int64_t sin_stride, \
  const X* __restrict__ first_ptr, int64_t first_stride, const X* __restrict__ cos_ptr, int64_t cos_stride, \
  X* __restrict__ turned_first_ptr, int64_t turned_first_stride, X* __restrict__ turned_second_ptr, \
  int64_t turned_second_stride, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void rotary_halves_forward(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const int column = int(blockIdx.y) * (T * P * V);
  const bool whole = int64_t(column) + T * P * V <= N && starts_at_chunk<V>(second_ptr, second_stride) && starts_at_chunk<V>(sin_ptr, sin_stride) && starts_at_chunk<V>(first_ptr, first_stride) && starts_at_chunk<V>(cos_ptr, cos_stride) && starts_at_chunk<V>(turned_first_ptr, turned_first_stride) && starts_at_chunk<V>(turned_second_ptr, turned_second_stride);
  const auto body = [&](const auto& tile) {
    const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
    const auto fetch = [&](int64_t row, Vec<X, V> (&second_to)[P], Vec<X, V> (&sin_to)[P], Vec<X, V> (&first_to)[P], Vec<X, V> (&cos_to)[P]) {
      if (row < M) {
        tile.load(second_to, second_ptr + row * second_stride);
        tile.load(sin_to, sin_ptr + row * sin_stride);
        tile.load(first_to, first_ptr + row * first_stride);
        tile.load(cos_to, cos_ptr + row * cos_stride);
      } else {
        clear(second_to, sin_to, first_to, cos_to);
      }
    };
    Vec<X, V> second_next[P], sin_next[P], first_next[P], cos_next[P];
    if constexpr (kAhead) fetch(rows.first + rows.own, second_next, sin_next, first_next, cos_next);
    for (int64_t base = rows.first; base < M; base += rows.step) {
      const int64_t row = base + rows.own;
      const bool live = row < M;
      Vec<X, V> second_vec[P], sin_vec[P], first_vec[P], cos_vec[P];
      if constexpr (kAhead) {
        copy(second_vec, second_next);
        copy(sin_vec, sin_next);
        copy(first_vec, first_next);
        copy(cos_vec, cos_next);
        fetch(row + rows.step, second_next, sin_next, first_next, cos_next);
      } else {
        fetch(row, second_vec, sin_vec, first_vec, cos_vec);
      }
#pragma unroll
      for (int p = 0; p < P; ++p) {
        if (!tile.reaches(p)) continue;
        C turned_first_out[V];
        C turned_second_out[V];
#pragma unroll
        for (int j = 0; j < V; ++j) {
          turned_first_out[j] = m_fma(-second_vec[p][j], sin_vec[p][j], first_vec[p][j] * cos_vec[p][j]);
          turned_second_out[j] = m_fma(first_vec[p][j], sin_vec[p][j], second_vec[p][j] * cos_vec[p][j]);
        }
        tile.store(turned_first_ptr + row * turned_first_stride, p, turned_first_out, live);
        tile.store(turned_second_ptr + row * turned_second_stride, p, turned_second_out, live);
      }
    }
  };
  if (whole)
    body(WholeTile<T, P, V>(thread, column, N));
  else
    body(RowTile<T, P, V, kN>(thread, column, N));
}

} // namespace avo

// Generated, do not edit. avo::rotary_halves_backward: pointwise kernel; formula: rotary_halves_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION rotary_halves_backward
#define AVO_ARGUMENTS cos_ptr, cos_stride, grad_turned_first_ptr, grad_turned_first_stride, sin_ptr, sin_stride, grad_turned_second_ptr, grad_turned_second_stride, first_ptr, first_stride, second_ptr, second_stride, grad_first_ptr, grad_first_stride, grad_second_ptr, grad_second_stride, grad_cos_ptr, grad_cos_stride, grad_sin_ptr, grad_sin_stride, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ cos_ptr, int64_t cos_stride, const X* __restrict__ grad_turned_first_ptr, \
  int64_t grad_turned_first_stride, const X* __restrict__ sin_ptr, int64_t sin_stride, \
  const X* __restrict__ grad_turned_second_ptr, int64_t grad_turned_second_stride, \
  const X* __restrict__ first_ptr, int64_t first_stride, const X* __restrict__ second_ptr, \
  int64_t second_stride, X* __restrict__ grad_first_ptr, int64_t grad_first_stride, \
  X* __restrict__ grad_second_ptr, int64_t grad_second_stride, X* __restrict__ grad_cos_ptr, \
  int64_t grad_cos_stride, X* __restrict__ grad_sin_ptr, int64_t grad_sin_stride, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void rotary_halves_backward(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const int column = int(blockIdx.y) * (T * P * V);
  const bool whole = int64_t(column) + T * P * V <= N && starts_at_chunk<V>(cos_ptr, cos_stride) && starts_at_chunk<V>(grad_turned_first_ptr, grad_turned_first_stride) && starts_at_chunk<V>(sin_ptr, sin_stride) && starts_at_chunk<V>(grad_turned_second_ptr, grad_turned_second_stride) && starts_at_chunk<V>(first_ptr, first_stride) && starts_at_chunk<V>(second_ptr, second_stride) && starts_at_chunk<V>(grad_first_ptr, grad_first_stride) && starts_at_chunk<V>(grad_second_ptr, grad_second_stride) && starts_at_chunk<V>(grad_cos_ptr, grad_cos_stride) && starts_at_chunk<V>(grad_sin_ptr, grad_sin_stride);
  const auto body = [&](const auto& tile) {
    const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
    const auto fetch = [&](int64_t row, Vec<X, V> (&cos_to)[P], Vec<X, V> (&grad_turned_first_to)[P], Vec<X, V> (&sin_to)[P], Vec<X, V> (&grad_turned_second_to)[P], Vec<X, V> (&first_to)[P], Vec<X, V> (&second_to)[P]) {
      if (row < M) {
        tile.load(cos_to, cos_ptr + row * cos_stride);
        tile.load(grad_turned_first_to, grad_turned_first_ptr + row * grad_turned_first_stride);
        tile.load(sin_to, sin_ptr + row * sin_stride);
        tile.load(grad_turned_second_to, grad_turned_second_ptr + row * grad_turned_second_stride);
        tile.load(first_to, first_ptr + row * first_stride);
        tile.load(second_to, second_ptr + row * second_stride);
      } else {
        clear(cos_to, grad_turned_first_to, sin_to, grad_turned_second_to, first_to, second_to);
      }
    };
    Vec<X, V> cos_next[P], grad_turned_first_next[P], sin_next[P], grad_turned_second_next[P], first_next[P], second_next[P];
    if constexpr (kAhead) fetch(rows.first + rows.own, cos_next, grad_turned_first_next, sin_next, grad_turned_second_next, first_next, second_next);
    for (int64_t base = rows.first; base < M; base += rows.step) {
      const int64_t row = base + rows.own;
      const bool live = row < M;
      Vec<X, V> cos_vec[P], grad_turned_first_vec[P], sin_vec[P], grad_turned_second_vec[P], first_vec[P], second_vec[P];
      if constexpr (kAhead) {
        copy(cos_vec, cos_next);
        copy(grad_turned_first_vec, grad_turned_first_next);
        copy(sin_vec, sin_next);
        copy(grad_turned_second_vec, grad_turned_second_next);
        copy(first_vec, first_next);
        copy(second_vec, second_next);
        fetch(row + rows.step, cos_next, grad_turned_first_next, sin_next, grad_turned_second_next, first_next, second_next);
      } else {
        fetch(row, cos_vec, grad_turned_first_vec, sin_vec, grad_turned_second_vec, first_vec, second_vec);
      }
#pragma unroll
      for (int p = 0; p < P; ++p) {
        if (!tile.reaches(p)) continue;
        C grad_first_out[V];
        C grad_second_out[V];
        C grad_cos_out[V];
        C grad_sin_out[V];
#pragma unroll
        for (int j = 0; j < V; ++j) {
          const C t1 = -grad_turned_first_vec[p][j];
          grad_first_out[j] = m_fma(cos_vec[p][j], grad_turned_first_vec[p][j], sin_vec[p][j] * grad_turned_second_vec[p][j]);
          grad_second_out[j] = m_fma(sin_vec[p][j], t1, cos_vec[p][j] * grad_turned_second_vec[p][j]);
          grad_cos_out[j] = m_fma(first_vec[p][j], grad_turned_first_vec[p][j], second_vec[p][j] * grad_turned_second_vec[p][j]);
          grad_sin_out[j] = m_fma(second_vec[p][j], t1, first_vec[p][j] * grad_turned_second_vec[p][j]);
        }
        tile.store(grad_first_ptr + row * grad_first_stride, p, grad_first_out, live);
        tile.store(grad_second_ptr + row * grad_second_stride, p, grad_second_out, live);
        tile.store(grad_cos_ptr + row * grad_cos_stride, p, grad_cos_out, live);
        tile.store(grad_sin_ptr + row * grad_sin_stride, p, grad_sin_out, live);
      }
    }
  };
  if (whole)
    body(WholeTile<T, P, V>(thread, column, N));
  else
    body(RowTile<T, P, V, kN>(thread, column, N));
}

} // namespace avo

// Generated, do not edit. avo::rotary_halves_backward_to_x: pointwise kernel; formula: rotary_halves_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION rotary_halves_backward_to_x
#define AVO_ARGUMENTS cos_ptr, cos_stride, grad_turned_first_ptr, grad_turned_first_stride, sin_ptr, sin_stride, grad_turned_second_ptr, grad_turned_second_stride, grad_first_ptr, grad_first_stride, grad_second_ptr, grad_second_stride, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ cos_ptr, int64_t cos_stride, const X* __restrict__ grad_turned_first_ptr, \
  int64_t grad_turned_first_stride, const X* __restrict__ sin_ptr, int64_t sin_stride, \
  const X* __restrict__ grad_turned_second_ptr, int64_t grad_turned_second_stride, \
  X* __restrict__ grad_first_ptr, int64_t grad_first_stride, X* __restrict__ grad_second_ptr, \
  int64_t grad_second_stride, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void rotary_halves_backward_to_x(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const int column = int(blockIdx.y) * (T * P * V);
  const bool whole = int64_t(column) + T * P * V <= N && starts_at_chunk<V>(cos_ptr, cos_stride) && starts_at_chunk<V>(grad_turned_first_ptr, grad_turned_first_stride) && starts_at_chunk<V>(sin_ptr, sin_stride) && starts_at_chunk<V>(grad_turned_second_ptr, grad_turned_second_stride) && starts_at_chunk<V>(grad_first_ptr, grad_first_stride) && starts_at_chunk<V>(grad_second_ptr, grad_second_stride);
  const auto body = [&](const auto& tile) {
    const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
    const auto fetch = [&](int64_t row, Vec<X, V> (&cos_to)[P], Vec<X, V> (&grad_turned_first_to)[P], Vec<X, V> (&sin_to)[P], Vec<X, V> (&grad_turned_second_to)[P]) {
      if (row < M) {
        tile.load(cos_to, cos_ptr + row * cos_stride);
        tile.load(grad_turned_first_to, grad_turned_first_ptr + row * grad_turned_first_stride);
        tile.load(sin_to, sin_ptr + row * sin_stride);
        tile.load(grad_turned_second_to, grad_turned_second_ptr + row * grad_turned_second_stride);
      } else {
        clear(cos_to, grad_turned_first_to, sin_to, grad_turned_second_to);
      }
    };
    Vec<X, V> cos_next[P], grad_turned_first_next[P], sin_next[P], grad_turned_second_next[P];
    if constexpr (kAhead) fetch(rows.first + rows.own, cos_next, grad_turned_first_next, sin_next, grad_turned_second_next);
    for (int64_t base = rows.first; base < M; base += rows.step) {
      const int64_t row = base + rows.own;
      const bool live = row < M;
      Vec<X, V> cos_vec[P], grad_turned_first_vec[P], sin_vec[P], grad_turned_second_vec[P];
      if constexpr (kAhead) {
        copy(cos_vec, cos_next);
        copy(grad_turned_first_vec, grad_turned_first_next);
        copy(sin_vec, sin_next);
        copy(grad_turned_second_vec, grad_turned_second_next);
        fetch(row + rows.step, cos_next, grad_turned_first_next, sin_next, grad_turned_second_next);
      } else {
        fetch(row, cos_vec, grad_turned_first_vec, sin_vec, grad_turned_second_vec);
      }
#pragma unroll
      for (int p = 0; p < P; ++p) {
        if (!tile.reaches(p)) continue;
        C grad_first_out[V];
        C grad_second_out[V];
#pragma unroll
        for (int j = 0; j < V; ++j) {
          grad_first_out[j] = m_fma(cos_vec[p][j], grad_turned_first_vec[p][j], sin_vec[p][j] * grad_turned_second_vec[p][j]);
          grad_second_out[j] = m_fma(sin_vec[p][j], -grad_turned_first_vec[p][j], cos_vec[p][j] * grad_turned_second_vec[p][j]);
        }
        tile.store(grad_first_ptr + row * grad_first_stride, p, grad_first_out, live);
        tile.store(grad_second_ptr + row * grad_second_stride, p, grad_second_out, live);
      }
    }
  };
  if (whole)
    body(WholeTile<T, P, V>(thread, column, N));
  else
    body(RowTile<T, P, V, kN>(thread, column, N));
}

} // namespace avo

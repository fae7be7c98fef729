// Generated, do not edit. avo::dequantize_rows_forward_int8: pointwise kernel; formula: dequantize_rows_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION dequantize_rows_forward_int8
#define AVO_ARGUMENTS x_ptr, x_stride, scale_ptr, y_ptr, y_stride, M, N
#define AVO_PARAMETERS(X, ...) \
  const i8* __restrict__ x_ptr, int64_t x_stride, const compute_t<X>* __restrict__ scale_ptr, \
  X* __restrict__ y_ptr, int64_t y_stride, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void dequantize_rows_forward_int8(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const int column = int(blockIdx.y) * (T * P * V);
  const bool whole = int64_t(column) + T * P * V <= N && starts_at_chunk<V>(x_ptr, x_stride) && starts_at_chunk<V>(y_ptr, y_stride);
  const auto body = [&](const auto& tile) {
    const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
    const auto fetch = [&](int64_t row, Vec<i8, V> (&x_to)[P], C& scale_to) {
      if (row < M) {
        tile.load(x_to, x_ptr + row * x_stride);
        scale_to = scale_ptr[row];
      } else {
        clear(x_to);
        scale_to = C(0);
      }
    };
    Vec<i8, V> x_next[P];
    C scale_next;
    if constexpr (kAhead) fetch(rows.first + rows.own, x_next, scale_next);
    for (int64_t base = rows.first; base < M; base += rows.step) {
      const int64_t row = base + rows.own;
      const bool live = row < M;
      Vec<i8, V> x_vec[P];
      C scale;
      if constexpr (kAhead) {
        copy(x_vec, x_next);
        scale = scale_next;
        fetch(row + rows.step, x_next, scale_next);
      } else {
        fetch(row, x_vec, scale);
      }
#pragma unroll
      for (int p = 0; p < P; ++p) {
        if (!tile.reaches(p)) continue;
        C y_out[V];
#pragma unroll
        for (int j = 0; j < V; ++j) {
          y_out[j] = C(x_vec[p][j]) * scale;
        }
        tile.store(y_ptr + row * y_stride, p, y_out, live);
      }
    }
  };
  if (whole)
    body(WholeTile<T, P, V>(thread, column, N));
  else
    body(RowTile<T, P, V, kN>(thread, column, N));
}

} // namespace avo

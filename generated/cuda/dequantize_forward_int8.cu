// Generated, do not edit. avo::dequantize_forward_int8: flat kernel; formula: dequantize_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION dequantize_forward_int8
#define AVO_ARGUMENTS x_ptr, scale_ptr, y_ptr, N
#define AVO_PARAMETERS(X, ...) \
  const i8* __restrict__ x_ptr, const compute_t<X>* __restrict__ scale_ptr, X* __restrict__ y_ptr, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void dequantize_forward_int8(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  constexpr int V = kVector<X>;
  const C scale = *scale_ptr;
  const int thread = thread_of_row<T, kBlock>();
  const int64_t column = int64_t(blockIdx.x) * (T * P * V);
  const bool whole = int64_t(column) + T * P * V <= N && starts_at_chunk<V>(x_ptr, 0) && starts_at_chunk<V>(y_ptr, 0);
  const auto body = [&](const auto& tile) {
    Vec<i8, V> x_vec[P];
    tile.load(x_vec, x_ptr);
#pragma unroll
    for (int p = 0; p < P; ++p) {
      C y_out[V];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        y_out[j] = C(x_vec[p][j]) * scale;
      }
      tile.store(y_ptr, p, y_out, true);
    }
  };
  if (whole)
    body(WholeTile<T, P, V, int64_t>(thread, column, N));
  else
    body(RowTile<T, P, V, kN, int64_t>(thread, column, N));
}

} // namespace avo

// Generated, do not edit. avo::hardswish_forward: flat kernel
// x * min(max(x + 3, 0), 6) / 6
// Source: Howard et al., Searching for MobileNetV3, arXiv:1905.02244
#include "device/avo.cuh"

#define AVO_FUNCTION hardswish_forward
#define AVO_ARGUMENTS x_ptr, y_ptr, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ x_ptr, X* __restrict__ y_ptr, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void hardswish_forward(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  constexpr int V = kVector<X>;
  const int thread = thread_of_row<T, kBlock>();
  const int64_t column = int64_t(blockIdx.x) * (T * P * V);
  const bool whole = int64_t(column) + T * P * V <= N && starts_at_chunk<V>(x_ptr, 0) && starts_at_chunk<V>(y_ptr, 0);
  const auto body = [&](const auto& tile) {
    Vec<X, V> x_vec[P];
    tile.load(x_vec, x_ptr);
#pragma unroll
    for (int p = 0; p < P; ++p) {
      C y_out[V];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        y_out[j] = m_where(m_ge(x_vec[p][j], C(3.0)), x_vec[p][j], m_where(m_le(x_vec[p][j], C(-3.0)), C(-0.0), x_vec[p][j] * (x_vec[p][j] + C(3.0)) * C(0.16666666666666666)));
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

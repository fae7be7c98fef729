// Generated, do not edit. avo::quantize_forward: flat kernel
// q = x / scale, to nearest even, within [-448, 448] or [-128, 127]
// Source: Micikevicius et al., FP8 Formats for Deep Learning, arXiv:2209.05433 (e4m3)
#include "device/avo.cuh"

#define AVO_FUNCTION quantize_forward
#define AVO_ARGUMENTS x_ptr, scale_ptr, q_ptr, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ x_ptr, const compute_t<X>* __restrict__ scale_ptr, f8* __restrict__ q_ptr, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void quantize_forward(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  using A = accuracy_t<X>;
  constexpr int V = kVector<X>;
  const C scale = *scale_ptr;
  const int thread = thread_of_row<T, kBlock>();
  const int64_t column = int64_t(blockIdx.x) * (T * P * V);
  const bool whole = int64_t(column) + T * P * V <= N && starts_at_chunk<V>(x_ptr, 0) && starts_at_chunk<V>(q_ptr, 0);
  const auto body = [&](const auto& tile) {
    Vec<X, V> x_vec[P];
    tile.load(x_vec, x_ptr);
#pragma unroll
    for (int p = 0; p < P; ++p) {
      C q_out[V];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const C q = m_quotient<A>(x_vec[p][j], scale, m_recip(scale));
        q_out[j] = m_min(C(448.0), m_max(C(-448.0), q));
      }
      tile.store(q_ptr, p, q_out, true);
    }
  };
  if (whole)
    body(WholeTile<T, P, V, int64_t>(thread, column, N));
  else
    body(RowTile<T, P, V, kN, int64_t>(thread, column, N));
}

} // namespace avo

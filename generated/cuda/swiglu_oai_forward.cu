// Generated, do not edit. avo::swiglu_oai_forward: flat kernel
// g * sigmoid(alpha g) * (u + 1); g = min(gate, limit), u = min(max(up, -limit), limit)
// Source: OpenAI, gpt-oss-120b and gpt-oss-20b Model Card, arXiv:2508.10925, and its published code
#include "device/avo.cuh"

#define AVO_FUNCTION swiglu_oai_forward
#define AVO_ARGUMENTS up_ptr, gate_ptr, y_ptr, limit, alpha, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ up_ptr, const X* __restrict__ gate_ptr, X* __restrict__ y_ptr, compute_t<X> limit, \
  compute_t<X> alpha, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void swiglu_oai_forward(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  using A = accuracy_t<X>;
  constexpr int V = kVector<X>;
  const int thread = thread_of_row<T, kBlock>();
  const int64_t column = int64_t(blockIdx.x) * (T * P * V);
  const bool whole = int64_t(column) + T * P * V <= N && starts_at_chunk<V>(up_ptr, 0) && starts_at_chunk<V>(gate_ptr, 0) && starts_at_chunk<V>(y_ptr, 0);
  const auto body = [&](const auto& tile) {
    Vec<X, V> up_vec[P];
    tile.load(up_vec, up_ptr);
    Vec<X, V> gate_vec[P];
    tile.load(gate_vec, gate_ptr);
#pragma unroll
    for (int p = 0; p < P; ++p) {
      C y_out[V];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const C g = m_min(gate_vec[p][j], limit);
        const C s = m_sigmoid<A>(alpha * g);
        y_out[j] = (m_min(limit, m_max(up_vec[p][j], -limit)) + C(1.0)) * (g * s);
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

// Generated, do not edit. avo::swiglu_oai_backward: flat kernel; formula: swiglu_oai_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION swiglu_oai_backward
#define AVO_ARGUMENTS gate_ptr, up_ptr, grad_ptr, grad_gate_ptr, grad_up_ptr, limit, alpha, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ gate_ptr, const X* __restrict__ up_ptr, const X* __restrict__ grad_ptr, \
  X* __restrict__ grad_gate_ptr, X* __restrict__ grad_up_ptr, compute_t<X> limit, compute_t<X> alpha, \
  int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void swiglu_oai_backward(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  using A = accuracy_t<X>;
  constexpr int V = kVector<X>;
  const int thread = thread_of_row<T, kBlock>();
  const int64_t column = int64_t(blockIdx.x) * (T * P * V);
  const bool whole = int64_t(column) + T * P * V <= N && starts_at_chunk<V>(gate_ptr, 0) && starts_at_chunk<V>(up_ptr, 0) && starts_at_chunk<V>(grad_ptr, 0) && starts_at_chunk<V>(grad_gate_ptr, 0) && starts_at_chunk<V>(grad_up_ptr, 0);
  const auto body = [&](const auto& tile) {
    Vec<X, V> gate_vec[P];
    tile.load(gate_vec, gate_ptr);
    Vec<X, V> up_vec[P];
    tile.load(up_vec, up_ptr);
    Vec<X, V> grad_vec[P];
    tile.load(grad_vec, grad_ptr);
#pragma unroll
    for (int p = 0; p < P; ++p) {
      C grad_gate_out[V];
      C grad_up_out[V];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const C t1 = -limit;
        const C g = m_min(gate_vec[p][j], limit);
        const C t2 = alpha * g;
        const C s = m_sigmoid<A>(t2);
        const C of_gate = (m_min(limit, m_max(up_vec[p][j], t1)) + C(1.0)) * grad_vec[p][j] * m_fma(alpha, g * (s * m_sigmoid_rest<A>(t2, s)), s);
        const C of_up = g * s * grad_vec[p][j];
        grad_gate_out[j] = m_where(m_le(gate_vec[p][j], limit), of_gate, C(0.0));
        grad_up_out[j] = m_where(m_and(m_ge(up_vec[p][j], t1), m_le(up_vec[p][j], limit)), of_up, C(0.0));
      }
      tile.store(grad_gate_ptr, p, grad_gate_out, true);
      tile.store(grad_up_ptr, p, grad_up_out, true);
    }
  };
  if (whole)
    body(WholeTile<T, P, V, int64_t>(thread, column, N));
  else
    body(RowTile<T, P, V, kN, int64_t>(thread, column, N));
}

} // namespace avo

// Generated, do not edit. avo::swiglu_oai_backward_to_up: flat kernel; formula: swiglu_oai_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION swiglu_oai_backward_to_up
#define AVO_ARGUMENTS up_ptr, gate_ptr, grad_ptr, grad_up_ptr, limit, alpha, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ up_ptr, const X* __restrict__ gate_ptr, const X* __restrict__ grad_ptr, \
  X* __restrict__ grad_up_ptr, compute_t<X> limit, compute_t<X> alpha, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void swiglu_oai_backward_to_up(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  using A = accuracy_t<X>;
  constexpr int V = kVector<X>;
  const int thread = thread_of_row<T, kBlock>();
  const int64_t column = int64_t(blockIdx.x) * (T * P * V);
  const bool whole = int64_t(column) + T * P * V <= N && starts_at_chunk<V>(up_ptr, 0) && starts_at_chunk<V>(gate_ptr, 0) && starts_at_chunk<V>(grad_ptr, 0) && starts_at_chunk<V>(grad_up_ptr, 0);
  const auto body = [&](const auto& tile) {
    Vec<X, V> up_vec[P];
    tile.load(up_vec, up_ptr);
    Vec<X, V> gate_vec[P];
    tile.load(gate_vec, gate_ptr);
    Vec<X, V> grad_vec[P];
    tile.load(grad_vec, grad_ptr);
#pragma unroll
    for (int p = 0; p < P; ++p) {
      C grad_up_out[V];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const C g = m_min(gate_vec[p][j], limit);
        const C s = m_sigmoid<A>(alpha * g);
        const C of_up = g * s * grad_vec[p][j];
        grad_up_out[j] = m_where(m_and(m_ge(up_vec[p][j], -limit), m_le(up_vec[p][j], limit)), of_up, C(0.0));
      }
      tile.store(grad_up_ptr, p, grad_up_out, true);
    }
  };
  if (whole)
    body(WholeTile<T, P, V, int64_t>(thread, column, N));
  else
    body(RowTile<T, P, V, kN, int64_t>(thread, column, N));
}

} // namespace avo

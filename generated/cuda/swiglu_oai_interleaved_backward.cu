// Generated, do not edit. avo::swiglu_oai_interleaved_backward: pointwise kernel; formula: swiglu_oai_interleaved_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION swiglu_oai_interleaved_backward
#define AVO_ARGUMENTS gate_ptr, gate_stride, up_ptr, up_stride, grad_ptr, grad_stride, grad_gate_ptr, grad_gate_stride, grad_up_ptr, grad_up_stride, limit, alpha, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ gate_ptr, int64_t gate_stride, const X* __restrict__ up_ptr, int64_t up_stride, \
  const X* __restrict__ grad_ptr, int64_t grad_stride, X* __restrict__ grad_gate_ptr, int64_t grad_gate_stride, \
  X* __restrict__ grad_up_ptr, int64_t grad_up_stride, compute_t<X> limit, compute_t<X> alpha, int64_t M, \
  int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void swiglu_oai_interleaved_backward(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  using A = accuracy_t<X>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const int column = int(blockIdx.y) * (T * P * V);
  const bool whole = int64_t(column) + T * P * V <= N && starts_at_chunk<V>(gate_ptr, gate_stride) && starts_at_chunk<V>(up_ptr, up_stride) && starts_at_chunk<V>(grad_ptr, grad_stride) && starts_at_chunk<V>(grad_gate_ptr, grad_gate_stride) && starts_at_chunk<V>(grad_up_ptr, grad_up_stride);
  const auto body = [&](const auto& tile) {
    const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
    const auto fetch = [&](int64_t row, Vec<X, V> (&gate_to)[P], Vec<X, V> (&up_to)[P], Vec<X, V> (&grad_to)[P]) {
      if (row < M) {
        tile.load(gate_to, gate_ptr + row * gate_stride);
        tile.load(up_to, up_ptr + row * up_stride);
        tile.load(grad_to, grad_ptr + row * grad_stride);
      } else {
        clear(gate_to, up_to, grad_to);
      }
    };
    Vec<X, V> gate_next[P], up_next[P], grad_next[P];
    if constexpr (kAhead) fetch(rows.first + rows.own, gate_next, up_next, grad_next);
    for (int64_t base = rows.first; base < M; base += rows.step) {
      const int64_t row = base + rows.own;
      const bool live = row < M;
      Vec<X, V> gate_vec[P], up_vec[P], grad_vec[P];
      if constexpr (kAhead) {
        copy(gate_vec, gate_next);
        copy(up_vec, up_next);
        copy(grad_vec, grad_next);
        fetch(row + rows.step, gate_next, up_next, grad_next);
      } else {
        fetch(row, gate_vec, up_vec, grad_vec);
      }
      const C t1 = -limit;
#pragma unroll
      for (int p = 0; p < P; ++p) {
        if (!tile.reaches(p)) continue;
        C grad_gate_out[V];
        C grad_up_out[V];
#pragma unroll
        for (int j = 0; j < V; ++j) {
          const C g = m_min(gate_vec[p][j], limit);
          const C t2 = alpha * g;
          const C s = m_sigmoid<A>(t2);
          const C of_gate = (m_min(limit, m_max(up_vec[p][j], t1)) + C(1.0)) * grad_vec[p][j] * m_fma(alpha, g * (s * m_sigmoid_rest<A>(t2, s)), s);
          const C of_up = g * s * grad_vec[p][j];
          grad_gate_out[j] = m_where(m_le(gate_vec[p][j], limit), of_gate, C(0.0));
          grad_up_out[j] = m_where(m_and(m_ge(up_vec[p][j], t1), m_le(up_vec[p][j], limit)), of_up, C(0.0));
        }
        tile.store(grad_gate_ptr + row * grad_gate_stride, p, grad_gate_out, live);
        tile.store(grad_up_ptr + row * grad_up_stride, p, grad_up_out, live);
      }
    }
  };
  if (whole)
    body(WholeTile<T, P, V>(thread, column, N));
  else
    body(RowTile<T, P, V, kN>(thread, column, N));
}

} // namespace avo

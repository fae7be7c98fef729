// Generated, do not edit. avo::geglu_packed_backward_tanh: pointwise kernel; formula: geglu_packed_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION geglu_packed_backward_tanh
#define AVO_ARGUMENTS up_ptr, up_stride, grad_ptr, grad_stride, gate_ptr, gate_stride, grad_gate_ptr, grad_gate_stride, grad_up_ptr, grad_up_stride, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ up_ptr, int64_t up_stride, const X* __restrict__ grad_ptr, int64_t grad_stride, \
  const X* __restrict__ gate_ptr, int64_t gate_stride, X* __restrict__ grad_gate_ptr, int64_t grad_gate_stride, \
  X* __restrict__ grad_up_ptr, int64_t grad_up_stride, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void geglu_packed_backward_tanh(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  using A = accuracy_t<X>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const int column = int(blockIdx.y) * (T * P * V);
  const bool whole = int64_t(column) + T * P * V <= N && starts_at_chunk<V>(up_ptr, up_stride) && starts_at_chunk<V>(grad_ptr, grad_stride) && starts_at_chunk<V>(gate_ptr, gate_stride) && starts_at_chunk<V>(grad_gate_ptr, grad_gate_stride) && starts_at_chunk<V>(grad_up_ptr, grad_up_stride);
  const auto body = [&](const auto& tile) {
    const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
    const auto fetch = [&](int64_t row, Vec<X, V> (&up_to)[P], Vec<X, V> (&grad_to)[P], Vec<X, V> (&gate_to)[P]) {
      if (row < M) {
        tile.load(up_to, up_ptr + row * up_stride);
        tile.load(grad_to, grad_ptr + row * grad_stride);
        tile.load(gate_to, gate_ptr + row * gate_stride);
      } else {
        clear(up_to, grad_to, gate_to);
      }
    };
    Vec<X, V> up_next[P], grad_next[P], gate_next[P];
    if constexpr (kAhead) fetch(rows.first + rows.own, up_next, grad_next, gate_next);
    for (int64_t base = rows.first; base < M; base += rows.step) {
      const int64_t row = base + rows.own;
      const bool live = row < M;
      Vec<X, V> up_vec[P], grad_vec[P], gate_vec[P];
      if constexpr (kAhead) {
        copy(up_vec, up_next);
        copy(grad_vec, grad_next);
        copy(gate_vec, gate_next);
        fetch(row + rows.step, up_next, grad_next, gate_next);
      } else {
        fetch(row, up_vec, grad_vec, gate_vec);
      }
#pragma unroll
      for (int p = 0; p < P; ++p) {
        if (!tile.reaches(p)) continue;
        C grad_gate_out[V];
        C grad_up_out[V];
#pragma unroll
        for (int j = 0; j < V; ++j) {
          const C t = m_min(m_max(gate_vec[p][j], C(-30.0)), C(30.0));
          const C du = C(1.5957691216057308) * m_fma(t * t, C(0.134145), C(1.0));
          const C t1 = t * C(1.5957691216057308) * m_fma(t, t * C(0.044715), C(1.0));
          const C s = m_sigmoid<A>(t1);
          grad_gate_out[j] = up_vec[p][j] * grad_vec[p][j] * m_fma(du, t * (s * m_sigmoid_rest<A>(t1, s)), s);
          grad_up_out[j] = gate_vec[p][j] * s * grad_vec[p][j];
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

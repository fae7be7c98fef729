// Generated, do not edit. avo::glu_backward: pointwise kernel; formula: glu_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION glu_backward
#define AVO_ARGUMENTS gate_ptr, gate_stride, grad_ptr, grad_stride, half_ptr, half_stride, grad_half_ptr, grad_half_stride, grad_gate_ptr, grad_gate_stride, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ gate_ptr, int64_t gate_stride, const X* __restrict__ grad_ptr, int64_t grad_stride, \
  const X* __restrict__ half_ptr, int64_t half_stride, X* __restrict__ grad_half_ptr, int64_t grad_half_stride, \
  X* __restrict__ grad_gate_ptr, int64_t grad_gate_stride, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void glu_backward(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  using A = accuracy_t<X>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const int column = int(blockIdx.y) * (T * P * V);
  const bool whole = int64_t(column) + T * P * V <= N && starts_at_chunk<V>(gate_ptr, gate_stride) && starts_at_chunk<V>(grad_ptr, grad_stride) && starts_at_chunk<V>(half_ptr, half_stride) && starts_at_chunk<V>(grad_half_ptr, grad_half_stride) && starts_at_chunk<V>(grad_gate_ptr, grad_gate_stride);
  const auto body = [&](const auto& tile) {
    const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
    const auto fetch = [&](int64_t row, Vec<X, V> (&gate_to)[P], Vec<X, V> (&grad_to)[P], Vec<X, V> (&half_to)[P]) {
      if (row < M) {
        tile.load(gate_to, gate_ptr + row * gate_stride);
        tile.load(grad_to, grad_ptr + row * grad_stride);
        tile.load(half_to, half_ptr + row * half_stride);
      } else {
        clear(gate_to, grad_to, half_to);
      }
    };
    Vec<X, V> gate_next[P], grad_next[P], half_next[P];
    if constexpr (kAhead) fetch(rows.first + rows.own, gate_next, grad_next, half_next);
    for (int64_t base = rows.first; base < M; base += rows.step) {
      const int64_t row = base + rows.own;
      const bool live = row < M;
      Vec<X, V> gate_vec[P], grad_vec[P], half_vec[P];
      if constexpr (kAhead) {
        copy(gate_vec, gate_next);
        copy(grad_vec, grad_next);
        copy(half_vec, half_next);
        fetch(row + rows.step, gate_next, grad_next, half_next);
      } else {
        fetch(row, gate_vec, grad_vec, half_vec);
      }
#pragma unroll
      for (int p = 0; p < P; ++p) {
        if (!tile.reaches(p)) continue;
        C grad_half_out[V];
        C grad_gate_out[V];
#pragma unroll
        for (int j = 0; j < V; ++j) {
          const C t1 = m_sigmoid<A>(gate_vec[p][j]);
          grad_half_out[j] = t1 * grad_vec[p][j];
          grad_gate_out[j] = half_vec[p][j] * (t1 * m_sigmoid_rest<A>(gate_vec[p][j], t1)) * grad_vec[p][j];
        }
        tile.store(grad_half_ptr + row * grad_half_stride, p, grad_half_out, live);
        tile.store(grad_gate_ptr + row * grad_gate_stride, p, grad_gate_out, live);
      }
    }
  };
  if (whole)
    body(WholeTile<T, P, V>(thread, column, N));
  else
    body(RowTile<T, P, V, kN>(thread, column, N));
}

} // namespace avo

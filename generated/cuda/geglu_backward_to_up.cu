// Generated, do not edit. avo::geglu_backward_to_up: flat kernel; formula: geglu_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION geglu_backward_to_up
#define AVO_ARGUMENTS gate_ptr, grad_ptr, grad_up_ptr, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ gate_ptr, const X* __restrict__ grad_ptr, X* __restrict__ grad_up_ptr, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void geglu_backward_to_up(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  using A = accuracy_t<X>;
  constexpr int V = kVector<X>;
  const int thread = thread_of_row<T, kBlock>();
  const int64_t column = int64_t(blockIdx.x) * (T * P * V);
  const bool whole = int64_t(column) + T * P * V <= N && starts_at_chunk<V>(gate_ptr, 0) && starts_at_chunk<V>(grad_ptr, 0) && starts_at_chunk<V>(grad_up_ptr, 0);
  const auto body = [&](const auto& tile) {
    Vec<X, V> gate_vec[P];
    tile.load(gate_vec, gate_ptr);
    Vec<X, V> grad_vec[P];
    tile.load(grad_vec, grad_ptr);
#pragma unroll
    for (int p = 0; p < P; ++p) {
      C grad_up_out[V];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        grad_up_out[j] = m_x_ndtr<A>(gate_vec[p][j], m_exp_neg_half_sq<A>(gate_vec[p][j])) * grad_vec[p][j];
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

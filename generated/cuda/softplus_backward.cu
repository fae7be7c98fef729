// Generated, do not edit. avo::softplus_backward: flat kernel; formula: softplus_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION softplus_backward
#define AVO_ARGUMENTS x_ptr, grad_ptr, grad_x_ptr, beta, threshold, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ x_ptr, const X* __restrict__ grad_ptr, X* __restrict__ grad_x_ptr, compute_t<X> beta, \
  compute_t<X> threshold, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void softplus_backward(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  using A = accuracy_t<X>;
  constexpr int V = kVector<X>;
  const int thread = thread_of_row<T, kBlock>();
  const int64_t column = int64_t(blockIdx.x) * (T * P * V);
  const bool whole = int64_t(column) + T * P * V <= N && starts_at_chunk<V>(x_ptr, 0) && starts_at_chunk<V>(grad_ptr, 0) && starts_at_chunk<V>(grad_x_ptr, 0);
  const auto body = [&](const auto& tile) {
    Vec<X, V> x_vec[P];
    tile.load(x_vec, x_ptr);
    Vec<X, V> grad_vec[P];
    tile.load(grad_vec, grad_ptr);
#pragma unroll
    for (int p = 0; p < P; ++p) {
      C grad_x_out[V];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const C u = x_vec[p][j] * beta;
        grad_x_out[j] = m_where(m_gt(u, threshold), grad_vec[p][j], m_sigmoid<A>(u) * grad_vec[p][j]);
      }
      tile.store(grad_x_ptr, p, grad_x_out, true);
    }
  };
  if (whole)
    body(WholeTile<T, P, V, int64_t>(thread, column, N));
  else
    body(RowTile<T, P, V, kN, int64_t>(thread, column, N));
}

} // namespace avo

// Generated, do not edit. avo::gelu_backward_tanh: flat kernel; formula: gelu_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION gelu_backward_tanh
#define AVO_ARGUMENTS x_ptr, grad_ptr, grad_x_ptr, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ x_ptr, const X* __restrict__ grad_ptr, X* __restrict__ grad_x_ptr, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void gelu_backward_tanh(AVO_PARAMETERS(X, T)) {
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
        const C t1 = m_min(m_max(x_vec[p][j], C(-30.0)), C(30.0));
        const C t2 = t1 * C(1.5957691216057308);
        const C t3 = t1 * C(0.044715);
        const C t4 = m_fma(t1, t3, C(1.0));
        const C t5 = t2 * t4;
        const C t6 = m_sigmoid<A>(t5);
        const C t7 = x_vec[p][j] * grad_vec[p][j] * (t6 * m_sigmoid_rest<A>(t5, t6));
        const C t8 = t2 * t7;
        grad_x_out[j] = m_fma(t6, grad_vec[p][j], m_where(m_and(m_ge(x_vec[p][j], C(-30.0)), m_le(x_vec[p][j], C(30.0))), m_fma(C(1.5957691216057308), t4 * t7, m_fma(C(0.044715), t1 * t8, t3 * t8)), C(0.0)));
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

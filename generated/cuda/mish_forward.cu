// Generated, do not edit. avo::mish_forward: flat kernel
// x * tanh(log(1 + exp(x)))
// Source: Misra, Mish: A Self Regularized Non-Monotonic Activation Function, arXiv:1908.08681
#include "device/avo.cuh"

#define AVO_FUNCTION mish_forward
#define AVO_ARGUMENTS x_ptr, y_ptr, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ x_ptr, X* __restrict__ y_ptr, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void mish_forward(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  using A = accuracy_t<X>;
  constexpr int V = kVector<X>;
  const int thread = thread_of_row<T, kBlock>();
  const int64_t column = int64_t(blockIdx.x) * (T * P * V);
  const bool whole = int64_t(column) + T * P * V <= N && starts_at_chunk<V>(x_ptr, 0) && starts_at_chunk<V>(y_ptr, 0);
  const auto body = [&](const auto& tile) {
    Vec<X, V> x_vec[P];
    tile.load(x_vec, x_ptr);
#pragma unroll
    for (int p = 0; p < P; ++p) {
      C y_out[V];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const C t = m_min(x_vec[p][j], C(20.0));
        const C e = m_exp<A>(t);
        const C t1 = m_fma(e, e, e * C(2.0));
        y_out[j] = x_vec[p][j] * (t1 / (C(2.0) + t1));
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

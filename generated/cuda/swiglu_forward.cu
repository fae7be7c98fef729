// Generated, do not edit. avo::swiglu_forward: flat kernel
// gate * sigmoid(gate) * up
// Source: Shazeer, GLU Variants Improve Transformer, arXiv:2002.05202
#include "device/avo.cuh"

#define AVO_FUNCTION swiglu_forward
#define AVO_ARGUMENTS up_ptr, gate_ptr, y_ptr, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ up_ptr, const X* __restrict__ gate_ptr, X* __restrict__ y_ptr, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void swiglu_forward(AVO_PARAMETERS(X, T)) {
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
        y_out[j] = up_vec[p][j] * m_x_sigmoid<A>(gate_vec[p][j]);
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

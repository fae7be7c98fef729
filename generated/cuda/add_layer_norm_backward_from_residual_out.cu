// Generated, do not edit. avo::add_layer_norm_backward_from_residual_out: flat kernel; formula: add_layer_norm_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION add_layer_norm_backward_from_residual_out
#define AVO_ARGUMENTS grad_residual_out_ptr, grad_x_ptr, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ grad_residual_out_ptr, X* __restrict__ grad_x_ptr, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void add_layer_norm_backward_from_residual_out(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  constexpr int V = kVector<X>;
  const int thread = thread_of_row<T, kBlock>();
  const int64_t column = int64_t(blockIdx.x) * (T * P * V);
  const bool whole = int64_t(column) + T * P * V <= N && starts_at_chunk<V>(grad_residual_out_ptr, 0) && starts_at_chunk<V>(grad_x_ptr, 0);
  const auto body = [&](const auto& tile) {
    Vec<X, V> grad_residual_out_vec[P];
    tile.load(grad_residual_out_vec, grad_residual_out_ptr);
#pragma unroll
    for (int p = 0; p < P; ++p) {
      C grad_x_out[V];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        grad_x_out[j] = grad_residual_out_vec[p][j];
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

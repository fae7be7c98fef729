// Generated, do not edit. avo::add_layer_norm_backward_from_residual_out_rows: pointwise kernel; formula: add_layer_norm_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION add_layer_norm_backward_from_residual_out_rows
#define AVO_ARGUMENTS grad_residual_out_ptr, grad_residual_out_stride, grad_x_ptr, grad_x_stride, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ grad_residual_out_ptr, int64_t grad_residual_out_stride, X* __restrict__ grad_x_ptr, \
  int64_t grad_x_stride, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void add_layer_norm_backward_from_residual_out_rows(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const int column = int(blockIdx.y) * (T * P * V);
  const bool whole = int64_t(column) + T * P * V <= N && starts_at_chunk<V>(grad_residual_out_ptr, grad_residual_out_stride) && starts_at_chunk<V>(grad_x_ptr, grad_x_stride);
  const auto body = [&](const auto& tile) {
    const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
    const auto fetch = [&](int64_t row, Vec<X, V> (&grad_residual_out_to)[P]) {
      if (row < M) {
        tile.load(grad_residual_out_to, grad_residual_out_ptr + row * grad_residual_out_stride);
      } else {
        clear(grad_residual_out_to);
      }
    };
    Vec<X, V> grad_residual_out_next[P];
    if constexpr (kAhead) fetch(rows.first + rows.own, grad_residual_out_next);
    for (int64_t base = rows.first; base < M; base += rows.step) {
      const int64_t row = base + rows.own;
      const bool live = row < M;
      Vec<X, V> grad_residual_out_vec[P];
      if constexpr (kAhead) {
        copy(grad_residual_out_vec, grad_residual_out_next);
        fetch(row + rows.step, grad_residual_out_next);
      } else {
        fetch(row, grad_residual_out_vec);
      }
#pragma unroll
      for (int p = 0; p < P; ++p) {
        if (!tile.reaches(p)) continue;
        C grad_x_out[V];
#pragma unroll
        for (int j = 0; j < V; ++j) {
          grad_x_out[j] = grad_residual_out_vec[p][j];
        }
        tile.store(grad_x_ptr + row * grad_x_stride, p, grad_x_out, live);
      }
    }
  };
  if (whole)
    body(WholeTile<T, P, V>(thread, column, N));
  else
    body(RowTile<T, P, V, kN>(thread, column, N));
}

} // namespace avo

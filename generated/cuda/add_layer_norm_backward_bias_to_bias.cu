// Generated, do not edit. avo::add_layer_norm_backward_bias_to_bias: column kernel; formula: add_layer_norm_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION add_layer_norm_backward_bias_to_bias
#define AVO_ARGUMENTS grad_y_ptr, grad_y_stride, partials, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ grad_y_ptr, int64_t grad_y_stride, compute_t<X>* __restrict__ partials, int64_t M, \
  int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void add_layer_norm_backward_bias_to_bias(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const int column = int(blockIdx.x) * (T * P * V);
  const bool whole = int64_t(column) + T * P * V <= N && starts_at_chunk<V>(grad_y_ptr, grad_y_stride);
  const auto body = [&](const auto& tile) {
    let_next_kernel_begin();
    C sum_grad_bias[P][V] = {};
    const BlockRows<T, kBlock> rows(blockIdx.y, gridDim.y);
    const auto fetch = [&](int64_t row, Vec<X, V> (&grad_y_to)[P]) {
      if (row < M) {
        tile.load(grad_y_to, grad_y_ptr + row * grad_y_stride);
      } else {
        clear(grad_y_to);
      }
    };
    Vec<X, V> grad_y_next[P];
    if constexpr (kAhead) fetch(rows.first + rows.own, grad_y_next);
    for (int64_t base = rows.first; base < M; base += rows.step) {
      const int64_t row = base + rows.own;
      const bool live = row < M;
      Vec<X, V> grad_y_vec[P];
      if constexpr (kAhead) {
        copy(grad_y_vec, grad_y_next);
        fetch(row + rows.step, grad_y_next);
      } else {
        fetch(row, grad_y_vec);
      }
#pragma unroll
      for (int p = 0; p < P; ++p) {
        if (!tile.reaches(p)) continue;
#pragma unroll
        for (int j = 0; j < V; ++j) {
          if (live) sum_grad_bias[p][j] += grad_y_vec[p][j];
        }
      }
    }
    __shared__ C shared[rows.kRows > 1 ? T * P * V : 1];
    write_partial<rows.kRows>(tile, sum_grad_bias, shared, partials + rows.block * N);
  };
  if (whole)
    body(WholeTile<T, P, V>(thread, column, N));
  else
    body(RowTile<T, P, V, kN>(thread, column, N));
}

} // namespace avo

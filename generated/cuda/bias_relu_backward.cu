// Generated, do not edit. avo::bias_relu_backward: column kernel; formula: bias_relu_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION bias_relu_backward
#define AVO_ARGUMENTS y_ptr, y_stride, grad_ptr, grad_stride, grad_x_ptr, grad_x_stride, partials, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ y_ptr, int64_t y_stride, const X* __restrict__ grad_ptr, int64_t grad_stride, \
  X* __restrict__ grad_x_ptr, int64_t grad_x_stride, compute_t<X>* __restrict__ partials, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void bias_relu_backward(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const int column = int(blockIdx.x) * (T * P * V);
  const bool whole = int64_t(column) + T * P * V <= N && starts_at_chunk<V>(y_ptr, y_stride) && starts_at_chunk<V>(grad_ptr, grad_stride) && starts_at_chunk<V>(grad_x_ptr, grad_x_stride);
  const auto body = [&](const auto& tile) {
    let_next_kernel_begin();
    C sum_grad_bias[P][V] = {};
    const BlockRows<T, kBlock> rows(blockIdx.y, gridDim.y);
    const auto fetch = [&](int64_t row, Vec<X, V> (&y_to)[P], Vec<X, V> (&grad_to)[P]) {
      if (row < M) {
        tile.load(y_to, y_ptr + row * y_stride);
        tile.load(grad_to, grad_ptr + row * grad_stride);
      } else {
        clear(y_to, grad_to);
      }
    };
    Vec<X, V> y_next[P], grad_next[P];
    if constexpr (kAhead) fetch(rows.first + rows.own, y_next, grad_next);
    for (int64_t base = rows.first; base < M; base += rows.step) {
      const int64_t row = base + rows.own;
      const bool live = row < M;
      Vec<X, V> y_vec[P], grad_vec[P];
      if constexpr (kAhead) {
        copy(y_vec, y_next);
        copy(grad_vec, grad_next);
        fetch(row + rows.step, y_next, grad_next);
      } else {
        fetch(row, y_vec, grad_vec);
      }
#pragma unroll
      for (int p = 0; p < P; ++p) {
        if (!tile.reaches(p)) continue;
        C grad_x_out[V];
#pragma unroll
        for (int j = 0; j < V; ++j) {
          const C t1 = m_where(m_le(y_vec[p][j], C(0.0)), C(0.0), grad_vec[p][j]);
          grad_x_out[j] = t1;
          if (live) sum_grad_bias[p][j] += t1;
        }
        tile.store(grad_x_ptr + row * grad_x_stride, p, grad_x_out, live);
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

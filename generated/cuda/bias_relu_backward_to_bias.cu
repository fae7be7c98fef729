// avo::bias_relu_backward_to_bias: column kernel. Written by the generator from definitions/; do not edit.
// relu(x + bias)
// Source: Nair and Hinton, Rectified Linear Units Improve Restricted Boltzmann Machines, ICML 2010
#include "device/avo.cuh"

namespace avo {

template <class X, int kBlock, int T, int P, int kN, bool kAhead>
AVO_INLINE void bias_relu_backward_to_bias(
    const X* __restrict__ y_ptr, int64_t y_stride, const X* __restrict__ grad_ptr, int64_t grad_stride,
    compute_t<X>* __restrict__ partials, int64_t M, int64_t N) {
  using C = compute_t<X>;
  constexpr int V = kVector<X>;
  constexpr int R = kBlock / T; // rows of a block
  const int thread = thread_of_row<T, kBlock>();
  const int column = int(blockIdx.x) * (T * P * V);
  const bool whole = int64_t(column) + T * P * V <= N && starts_at_chunk(y_ptr, y_stride) && starts_at_chunk(grad_ptr, grad_stride);
  const auto body = [&](const auto& tile) {
    let_next_kernel_begin();
    C sum_grad_bias[P][V] = {};
    const int64_t step = int64_t(gridDim.y) * R;
    const int64_t first = int64_t(blockIdx.y) * R;
    const int own = int(threadIdx.x) / T; // which of the block's rows
    const auto fetch = [&](int64_t row, Vec<X, V> (&y_to)[P], Vec<X, V> (&grad_to)[P]) {
      if (row < M) {
        tile.load(y_to, y_ptr + row * y_stride);
        tile.load(grad_to, grad_ptr + row * grad_stride);
      } else {
        clear(y_to);
        clear(grad_to);
      }
    };
    // kAhead: a persistent block keeps the column operands, and loads the next row before it treats a row.
    Vec<X, V> y_next[P];
    Vec<X, V> grad_next[P];
    if constexpr (kAhead) fetch(first + own, y_next, grad_next);
    for (int64_t base = first; base < M; base += step) {
      const int64_t row = base + own;
      const bool live = row < M;
      Vec<X, V> y_vec[P];
      Vec<X, V> grad_vec[P];
      if constexpr (kAhead) {
#pragma unroll
        for (int p = 0; p < P; ++p) y_vec[p] = y_next[p];
#pragma unroll
        for (int p = 0; p < P; ++p) grad_vec[p] = grad_next[p];
        fetch(row + step, y_next, grad_next);
      } else {
        fetch(row, y_vec, grad_vec);
      }
#pragma unroll
      for (int p = 0; p < P; ++p) {
        if (!tile.reaches(p)) continue;
#pragma unroll
        for (int j = 0; j < V; ++j) {
          if (live) sum_grad_bias[p][j] += m_where(m_le(y_vec[p][j], C(0.0)), C(0.0), grad_vec[p][j]);
        }
      }
    }
    __shared__ C shared[R > 1 ? T * P * V : 1];
    write_partial<R>(tile, sum_grad_bias, shared, partials + int64_t(blockIdx.y) * N);
  };
  if (whole)
    body(WholeTile<T, P, V>(thread, column, N));
  else
    body(RowTile<T, P, V, kN>(thread, column, N));
}

} // namespace avo

#define AVO_KERNEL(NAME, BLOCK, MIN_BLOCKS, X, T, P, N_, AHEAD) \
  extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS) NAME( \
      const avo::X* __restrict__ y_ptr, int64_t y_stride, const avo::X* __restrict__ grad_ptr, \
      int64_t grad_stride, avo::compute_t<avo::X>* __restrict__ partials, int64_t M, int64_t N) { \
    avo::bias_relu_backward_to_bias<avo::X, BLOCK, T, P, N_, AHEAD>(y_ptr, y_stride, grad_ptr, grad_stride, partials, M, N); \
  }

// avo::add_layer_norm_backward_bias_to_bias: column kernel. Written by the generator from definitions/; do not edit.
// residual_out = x + residual; y = layer_norm(residual_out)
// Source: Ba, Kiros and Hinton, Layer Normalization, arXiv:1607.06450
#include "device/avo.cuh"

namespace avo {

template <class X, int kBlock, int T, int P, int kN, bool kAhead>
AVO_INLINE void add_layer_norm_backward_bias_to_bias(
    const X* __restrict__ grad_y_ptr, int64_t grad_y_stride, compute_t<X>* __restrict__ partials, int64_t M,
    int64_t N) {
  using C = compute_t<X>;
  constexpr int V = kVector<X>;
  constexpr int R = kBlock / T; // rows of a block
  const int thread = thread_of_row<T, kBlock>();
  const int column = int(blockIdx.x) * (T * P * V);
  const bool whole = int64_t(column) + T * P * V <= N && starts_at_chunk(grad_y_ptr, grad_y_stride);
  const auto body = [&](const auto& tile) {
    let_next_kernel_begin();
    C sum_grad_bias[P][V] = {};
    const int64_t step = int64_t(gridDim.y) * R;
    const int64_t first = int64_t(blockIdx.y) * R;
    const int own = int(threadIdx.x) / T; // which of the block's rows
    const auto fetch = [&](int64_t row, Vec<X, V> (&grad_y_to)[P]) {
      if (row < M) {
        tile.load(grad_y_to, grad_y_ptr + row * grad_y_stride);
      } else {
        clear(grad_y_to);
      }
    };
    // kAhead: a persistent block keeps the column operands, and loads the next row before it treats a row.
    Vec<X, V> grad_y_next[P];
    if constexpr (kAhead) fetch(first + own, grad_y_next);
    for (int64_t base = first; base < M; base += step) {
      const int64_t row = base + own;
      const bool live = row < M;
      Vec<X, V> grad_y_vec[P];
      if constexpr (kAhead) {
#pragma unroll
        for (int p = 0; p < P; ++p) grad_y_vec[p] = grad_y_next[p];
        fetch(row + step, grad_y_next);
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
      const avo::X* __restrict__ grad_y_ptr, int64_t grad_y_stride, \
      avo::compute_t<avo::X>* __restrict__ partials, int64_t M, int64_t N) { \
    avo::add_layer_norm_backward_bias_to_bias<avo::X, BLOCK, T, P, N_, AHEAD>(grad_y_ptr, grad_y_stride, partials, M, N); \
  }

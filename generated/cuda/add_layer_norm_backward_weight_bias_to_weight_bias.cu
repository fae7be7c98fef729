// avo::add_layer_norm_backward_weight_bias_to_weight_bias: column kernel. Written by the generator from definitions/; do not edit.
// residual_out = x + residual; y = layer_norm(residual_out)
// Source: Ba, Kiros and Hinton, Layer Normalization, arXiv:1607.06450
#include "device/avo.cuh"

namespace avo {

template <class X, int kBlock, int T, int P, int kN>
AVO_INLINE void add_layer_norm_backward_weight_bias_to_weight_bias(
    const X* __restrict__ grad_y_ptr, int64_t grad_y_stride, const X* __restrict__ residual_out_ptr,
    int64_t residual_out_stride, const compute_t<X>* __restrict__ rstd_ptr,
    const compute_t<X>* __restrict__ mean_ptr, compute_t<X>* __restrict__ partials, int64_t M, int64_t N) {
  using C = compute_t<X>;
  constexpr int V = kVector<X>;
  constexpr int R = kBlock / T; // rows of a block
  const RowTile<T, P, V, kN> tile(int(blockIdx.x) * (T * P * V), N);
  C sum_grad_weight[P][V] = {};
  C sum_grad_bias[P][V] = {};
  const int64_t step = int64_t(gridDim.y) * R;
  const int64_t first = int64_t(blockIdx.y) * R;
  const int own = int(threadIdx.x) / T; // which of the block's rows
  // The next row's loads are issued before this row is reduced.
  Vec<X, V> grad_y_next[P];
  Vec<X, V> residual_out_next[P];
  C rstd_next;
  C mean_next;
  const auto fetch = [&](int64_t row) {
    if (row < M) {
      tile.load(grad_y_next, grad_y_ptr + row * grad_y_stride);
      tile.load(residual_out_next, residual_out_ptr + row * residual_out_stride);
      rstd_next = rstd_ptr[row];
      mean_next = mean_ptr[row];
    } else {
      clear(grad_y_next);
      clear(residual_out_next);
      rstd_next = C(0);
      mean_next = C(0);
    }
  };
  fetch(first + own);
  for (int64_t base = first; base < M; base += step) {
    const int64_t row = base + own;
    const bool live = row < M;
    Vec<X, V> grad_y_vec[P];
#pragma unroll
    for (int p = 0; p < P; ++p) grad_y_vec[p] = grad_y_next[p];
    Vec<X, V> residual_out_vec[P];
#pragma unroll
    for (int p = 0; p < P; ++p) residual_out_vec[p] = residual_out_next[p];
    const C rstd = rstd_next;
    const C mean = mean_next;
    fetch(row + step);
#pragma unroll
    for (int p = 0; p < P; ++p) {
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const C centred = residual_out_vec[p][j] - mean;
        const C y = rstd * centred;
        if (live) sum_grad_weight[p][j] += grad_y_vec[p][j] * y;
        if (live) sum_grad_bias[p][j] += grad_y_vec[p][j];
      }
    }
  }
  __shared__ C shared[R > 1 ? T * P * V : 1];
  write_partial<R>(tile, sum_grad_weight, shared, partials + (int64_t(blockIdx.y) * 2 + 0) * N);
  write_partial<R>(tile, sum_grad_bias, shared, partials + (int64_t(blockIdx.y) * 2 + 1) * N);
}

} // namespace avo

#define AVO_KERNEL(NAME, BLOCK, MIN_BLOCKS, X, T, P, N_) \
  extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS) NAME( \
      const avo::X* __restrict__ grad_y_ptr, int64_t grad_y_stride, \
      const avo::X* __restrict__ residual_out_ptr, int64_t residual_out_stride, \
      const avo::compute_t<avo::X>* __restrict__ rstd_ptr, \
      const avo::compute_t<avo::X>* __restrict__ mean_ptr, avo::compute_t<avo::X>* __restrict__ partials, \
      int64_t M, int64_t N) { \
    avo::add_layer_norm_backward_weight_bias_to_weight_bias<avo::X, BLOCK, T, P, N_>(grad_y_ptr, grad_y_stride, residual_out_ptr, residual_out_stride, rstd_ptr, mean_ptr, partials, M, N); \
  }

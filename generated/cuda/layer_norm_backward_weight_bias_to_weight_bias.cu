// avo::layer_norm_backward_weight_bias_to_weight_bias: column kernel. Written by the generator from definitions/; do not edit.
// (x - mean(x)) / sqrt(var(x) + eps) * weight + bias, var with divisor N
// Source: Ba, Kiros and Hinton, Layer Normalization, arXiv:1607.06450
#include "device/avo.cuh"

namespace avo {

template <class X, int kBlock, int T, int P, int kN>
AVO_INLINE void layer_norm_backward_weight_bias_to_weight_bias(
    const X* __restrict__ x_ptr, int64_t x_stride, const X* __restrict__ grad_ptr, int64_t grad_stride,
    const compute_t<X>* __restrict__ rstd_ptr, const compute_t<X>* __restrict__ mean_ptr,
    compute_t<X>* __restrict__ partials, int64_t M, int64_t N) {
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
  Vec<X, V> x_next[P];
  Vec<X, V> grad_next[P];
  C rstd_next;
  C mean_next;
  const auto fetch = [&](int64_t row) {
    if (row < M) {
      tile.load(x_next, x_ptr + row * x_stride);
      tile.load(grad_next, grad_ptr + row * grad_stride);
      rstd_next = rstd_ptr[row];
      mean_next = mean_ptr[row];
    } else {
      clear(x_next);
      clear(grad_next);
      rstd_next = C(0);
      mean_next = C(0);
    }
  };
  fetch(first + own);
  for (int64_t base = first; base < M; base += step) {
    const int64_t row = base + own;
    const bool live = row < M;
    Vec<X, V> x_vec[P];
#pragma unroll
    for (int p = 0; p < P; ++p) x_vec[p] = x_next[p];
    Vec<X, V> grad_vec[P];
#pragma unroll
    for (int p = 0; p < P; ++p) grad_vec[p] = grad_next[p];
    const C rstd = rstd_next;
    const C mean = mean_next;
    fetch(row + step);
#pragma unroll
    for (int p = 0; p < P; ++p) {
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const C centred = x_vec[p][j] - mean;
        const C y = rstd * centred;
        if (live) sum_grad_weight[p][j] += y * grad_vec[p][j];
        if (live) sum_grad_bias[p][j] += grad_vec[p][j];
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
      const avo::X* __restrict__ x_ptr, int64_t x_stride, const avo::X* __restrict__ grad_ptr, \
      int64_t grad_stride, const avo::compute_t<avo::X>* __restrict__ rstd_ptr, \
      const avo::compute_t<avo::X>* __restrict__ mean_ptr, avo::compute_t<avo::X>* __restrict__ partials, \
      int64_t M, int64_t N) { \
    avo::layer_norm_backward_weight_bias_to_weight_bias<avo::X, BLOCK, T, P, N_>(x_ptr, x_stride, grad_ptr, grad_stride, rstd_ptr, mean_ptr, partials, M, N); \
  }

// avo::add_rms_norm_backward_weight_to_weight: column kernel. Written by the generator from definitions/; do not edit.
// residual_out = x + residual; y = rms_norm(residual_out)
// Source: Zhang and Sennrich, Root Mean Square Layer Normalization, arXiv:1910.07467
#include "device/avo.cuh"

namespace avo {

template <class X, int kBlock, int T, int P, int kN, bool kAhead>
AVO_INLINE void add_rms_norm_backward_weight_to_weight(
    const X* __restrict__ grad_y_ptr, int64_t grad_y_stride, const X* __restrict__ residual_out_ptr,
    int64_t residual_out_stride, const compute_t<X>* __restrict__ rstd_ptr, compute_t<X>* __restrict__ partials,
    int64_t M, int64_t N) {
  using C = compute_t<X>;
  constexpr int V = kVector<X>;
  constexpr int R = kBlock / T; // rows of a block
  const int thread = thread_of_row<T, kBlock>();
  const int column = int(blockIdx.x) * (T * P * V);
  const bool whole = int64_t(column) + T * P * V <= N && starts_at_chunk(grad_y_ptr, grad_y_stride) && starts_at_chunk(residual_out_ptr, residual_out_stride);
  const auto body = [&](const auto& tile) {
    let_next_kernel_begin();
    C sum_grad_weight[P][V] = {};
    const int64_t step = int64_t(gridDim.y) * R;
    const int64_t first = int64_t(blockIdx.y) * R;
    const int own = int(threadIdx.x) / T; // which of the block's rows
    const auto fetch = [&](int64_t row, Vec<X, V> (&grad_y_to)[P], Vec<X, V> (&residual_out_to)[P], C& rstd_to) {
      if (row < M) {
        tile.load(grad_y_to, grad_y_ptr + row * grad_y_stride);
        tile.load(residual_out_to, residual_out_ptr + row * residual_out_stride);
        rstd_to = rstd_ptr[row];
      } else {
        clear(grad_y_to);
        clear(residual_out_to);
        rstd_to = C(0);
      }
    };
    // kAhead: a persistent block keeps the column operands, and loads the next row before it treats a row.
    Vec<X, V> grad_y_next[P];
    Vec<X, V> residual_out_next[P];
    C rstd_next;
    if constexpr (kAhead) fetch(first + own, grad_y_next, residual_out_next, rstd_next);
    for (int64_t base = first; base < M; base += step) {
      const int64_t row = base + own;
      const bool live = row < M;
      Vec<X, V> grad_y_vec[P];
      Vec<X, V> residual_out_vec[P];
      C rstd;
      if constexpr (kAhead) {
#pragma unroll
        for (int p = 0; p < P; ++p) grad_y_vec[p] = grad_y_next[p];
#pragma unroll
        for (int p = 0; p < P; ++p) residual_out_vec[p] = residual_out_next[p];
        rstd = rstd_next;
        fetch(row + step, grad_y_next, residual_out_next, rstd_next);
      } else {
        fetch(row, grad_y_vec, residual_out_vec, rstd);
      }
#pragma unroll
      for (int p = 0; p < P; ++p) {
        if (!tile.reaches(p)) continue;
#pragma unroll
        for (int j = 0; j < V; ++j) {
          const C y = rstd * residual_out_vec[p][j];
          if (live) sum_grad_weight[p][j] += grad_y_vec[p][j] * y;
        }
      }
    }
    __shared__ C shared[R > 1 ? T * P * V : 1];
    write_partial<R>(tile, sum_grad_weight, shared, partials + int64_t(blockIdx.y) * N);
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
      const avo::X* __restrict__ residual_out_ptr, int64_t residual_out_stride, \
      const avo::compute_t<avo::X>* __restrict__ rstd_ptr, avo::compute_t<avo::X>* __restrict__ partials, \
      int64_t M, int64_t N) { \
    avo::add_rms_norm_backward_weight_to_weight<avo::X, BLOCK, T, P, N_, AHEAD>(grad_y_ptr, grad_y_stride, residual_out_ptr, residual_out_stride, rstd_ptr, partials, M, N); \
  }

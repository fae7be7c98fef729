// avo::add_rms_norm_backward_weight: row kernel. Written by the generator from definitions/; do not edit.
// residual_out = x + residual; y = rms_norm(residual_out)
// Source: Zhang and Sennrich, Root Mean Square Layer Normalization, arXiv:1910.07467
#include "device/avo.cuh"

namespace avo {

template <class X, class W, int kBlock, int T, int P, int kN, bool kAhead>
AVO_INLINE void add_rms_norm_backward_weight(
    const X* __restrict__ residual_out_ptr, int64_t residual_out_stride, const X* __restrict__ grad_y_ptr,
    int64_t grad_y_stride, const X* __restrict__ grad_residual_out_ptr, int64_t grad_residual_out_stride,
    const W* __restrict__ weight_ptr, const compute_t<X>* __restrict__ rstd_ptr, X* __restrict__ grad_x_ptr,
    int64_t grad_x_stride, compute_t<X>* __restrict__ partials, int64_t M, int64_t N) {
  using C = compute_t<X>;
  constexpr int V = kVector<X>;
  constexpr int kBlocks = kBlocksOfRow<T, kBlock>;
  constexpr int R = kBlocks > 1 ? 1 : kBlock / T; // rows of a block
  const int thread = thread_of_row<T, kBlock>();
  const RowTile<T, P, V, kN> tile(thread, 0, N);
  __shared__ RowScratch<C, kBlock, T, 1> scratch;
  int turn = 0;
  let_next_kernel_begin();
  Vec<W, V> weight_vec[P];
  tile.load_columns(weight_vec, weight_ptr);
  C sum_grad_weight[P][V] = {};
  if constexpr (kBlocks > 1) cluster_barrier(); // all blocks of the row have begun
  const int64_t step = int64_t(gridDim.x / kBlocks) * R;
  const int64_t first = int64_t(blockIdx.x / kBlocks) * R;
  const int own = int(threadIdx.x) / T; // which of the block's rows
  const auto fetch = [&](int64_t row, Vec<X, V> (&residual_out_to)[P], Vec<X, V> (&grad_y_to)[P], Vec<X, V> (&grad_residual_out_to)[P], C& rstd_to) {
    if (row < M) {
      tile.load(residual_out_to, residual_out_ptr + row * residual_out_stride);
      tile.load(grad_y_to, grad_y_ptr + row * grad_y_stride);
      tile.load(grad_residual_out_to, grad_residual_out_ptr + row * grad_residual_out_stride);
      rstd_to = rstd_ptr[row];
    } else {
      clear(residual_out_to);
      clear(grad_y_to);
      clear(grad_residual_out_to);
      rstd_to = C(0);
    }
  };
  // kAhead: a persistent block keeps the column operands, and loads the next row before it treats a row.
  Vec<X, V> residual_out_next[P];
  Vec<X, V> grad_y_next[P];
  Vec<X, V> grad_residual_out_next[P];
  C rstd_next;
  if constexpr (kAhead) fetch(first + own, residual_out_next, grad_y_next, grad_residual_out_next, rstd_next);
  for (int64_t base = first; base < M; base += step) {
    const int64_t row = base + own;
    const bool live = row < M;
    Vec<X, V> residual_out_vec[P];
    Vec<X, V> grad_y_vec[P];
    Vec<X, V> grad_residual_out_vec[P];
    C rstd;
    if constexpr (kAhead) {
#pragma unroll
      for (int p = 0; p < P; ++p) residual_out_vec[p] = residual_out_next[p];
#pragma unroll
      for (int p = 0; p < P; ++p) grad_y_vec[p] = grad_y_next[p];
#pragma unroll
      for (int p = 0; p < P; ++p) grad_residual_out_vec[p] = grad_residual_out_next[p];
      rstd = rstd_next;
      fetch(row + step, residual_out_next, grad_y_next, grad_residual_out_next, rstd_next);
    } else {
      fetch(row, residual_out_vec, grad_y_vec, grad_residual_out_vec, rstd);
    }
    C t1 = C(0);
    tile.each([&](int p, int j) {
      t1 += weight_vec[p][j] * grad_y_vec[p][j] * residual_out_vec[p][j];
    });
    row_reduce<Sum, T, kBlock>(scratch, turn, t1);
    const C t2 = rstd * (rstd * (-t1 / C(N)));
#pragma unroll
    for (int p = 0; p < P; ++p) {
      if (!tile.reaches(p)) continue;
      C grad_x_out[V];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const C y = rstd * residual_out_vec[p][j];
        grad_x_out[j] = m_fma(y, t2, m_fma(weight_vec[p][j] * grad_y_vec[p][j], rstd, grad_residual_out_vec[p][j]));
        if (live) sum_grad_weight[p][j] += grad_y_vec[p][j] * y;
      }
      tile.store(grad_x_ptr + row * grad_x_stride, p, grad_x_out, live);
    }
  }
  __shared__ C shared[R > 1 ? T * P * V : 1];
  write_partial<R>(tile, sum_grad_weight, shared, partials + int64_t(blockIdx.x / kBlocks) * N);
}

} // namespace avo

#define AVO_KERNEL(NAME, BLOCK, MIN_BLOCKS, X, W, T, P, N_, AHEAD) \
  extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS) NAME( \
      const avo::X* __restrict__ residual_out_ptr, int64_t residual_out_stride, \
      const avo::X* __restrict__ grad_y_ptr, int64_t grad_y_stride, \
      const avo::X* __restrict__ grad_residual_out_ptr, int64_t grad_residual_out_stride, \
      const avo::W* __restrict__ weight_ptr, const avo::compute_t<avo::X>* __restrict__ rstd_ptr, \
      avo::X* __restrict__ grad_x_ptr, int64_t grad_x_stride, \
      avo::compute_t<avo::X>* __restrict__ partials, int64_t M, int64_t N) { \
    avo::add_rms_norm_backward_weight<avo::X, avo::W, BLOCK, T, P, N_, AHEAD>(residual_out_ptr, residual_out_stride, grad_y_ptr, grad_y_stride, grad_residual_out_ptr, grad_residual_out_stride, weight_ptr, rstd_ptr, grad_x_ptr, grad_x_stride, partials, M, N); \
  }

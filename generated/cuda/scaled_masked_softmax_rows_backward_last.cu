// avo::scaled_masked_softmax_rows_backward_last: row kernel. Written by the generator from definitions/; do not edit.
// softmax(scale * x + attn_mask) over the last dim, without the columns beyond last
// Source: Vaswani et al., Attention Is All You Need, arXiv:1706.03762
#include "device/avo.cuh"

namespace avo {

template <class X, int kBlock, int T, int P, int kN, bool kAhead>
AVO_INLINE void scaled_masked_softmax_rows_backward_last(
    const X* __restrict__ y_ptr, int64_t y_stride, const X* __restrict__ grad_ptr, int64_t grad_stride,
    const int64_t* __restrict__ last_ptr, X* __restrict__ grad_x_ptr, int64_t grad_x_stride, compute_t<X> scale,
    int64_t M, int64_t N) {
  using C = compute_t<X>;
  constexpr int V = kVector<X>;
  constexpr int kBlocks = kBlocksOfRow<T, kBlock>;
  constexpr int R = kBlocks > 1 ? 1 : kBlock / T; // rows of a block
  const int thread = thread_of_row<T, kBlock>();
  const RowTile<T, P, V, kN> tile(thread, 0, N);
  __shared__ RowScratch<C, kBlock, T, 1> scratch;
  int turn = 0;
  if constexpr (kBlocks > 1) cluster_barrier(); // all blocks of the row have begun
  const int64_t step = int64_t(gridDim.x / kBlocks) * R;
  const int64_t first = int64_t(blockIdx.x / kBlocks) * R;
  const int own = int(threadIdx.x) / T; // which of the block's rows
  const auto fetch = [&](int64_t row, Vec<X, V> (&y_to)[P], Vec<X, V> (&grad_to)[P], int64_t& last_to) {
    if (row < M) {
      tile.load(y_to, y_ptr + row * y_stride);
      tile.load(grad_to, grad_ptr + row * grad_stride);
      last_to = last_ptr[row];
    } else {
      clear(y_to);
      clear(grad_to);
      last_to = int64_t(0);
    }
  };
  // kAhead: a persistent block keeps the column operands, and loads the next row before it treats a row.
  Vec<X, V> y_next[P];
  Vec<X, V> grad_next[P];
  int64_t last_next;
  if constexpr (kAhead) fetch(first + own, y_next, grad_next, last_next);
  for (int64_t base = first; base < M; base += step) {
    const int64_t row = base + own;
    const bool live = row < M;
    Vec<X, V> y_vec[P];
    Vec<X, V> grad_vec[P];
    int64_t last;
    if constexpr (kAhead) {
#pragma unroll
      for (int p = 0; p < P; ++p) y_vec[p] = y_next[p];
#pragma unroll
      for (int p = 0; p < P; ++p) grad_vec[p] = grad_next[p];
      last = last_next;
      fetch(row + step, y_next, grad_next, last_next);
    } else {
      fetch(row, y_vec, grad_vec, last);
    }
    C t1 = C(0);
    tile.each([&](int p, int j) {
      t1 += y_vec[p][j] * grad_vec[p][j];
    });
    row_reduce<Sum, T, kBlock>(scratch, turn, t1);
#pragma unroll
    for (int p = 0; p < P; ++p) {
      if (!tile.reaches(p)) continue;
      C grad_x_out[V];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const C of_score = m_where(m_le(C(tile.column(p) + j), C(last)), y_vec[p][j] * (grad_vec[p][j] - t1), C(0.0));
        grad_x_out[j] = scale * of_score;
      }
      tile.store(grad_x_ptr + row * grad_x_stride, p, grad_x_out, live);
    }
  }
}

} // namespace avo

#define AVO_KERNEL(NAME, BLOCK, MIN_BLOCKS, X, T, P, N_, AHEAD) \
  extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS) NAME( \
      const avo::X* __restrict__ y_ptr, int64_t y_stride, const avo::X* __restrict__ grad_ptr, \
      int64_t grad_stride, const int64_t* __restrict__ last_ptr, avo::X* __restrict__ grad_x_ptr, \
      int64_t grad_x_stride, avo::compute_t<avo::X> scale, int64_t M, int64_t N) { \
    avo::scaled_masked_softmax_rows_backward_last<avo::X, BLOCK, T, P, N_, AHEAD>(y_ptr, y_stride, grad_ptr, grad_stride, last_ptr, grad_x_ptr, grad_x_stride, scale, M, N); \
  }

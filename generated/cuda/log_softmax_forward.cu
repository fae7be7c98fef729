// avo::log_softmax_forward: row kernel. Written by the generator from definitions/; do not edit.
// x - max(x) - log(sum(exp(x - max(x))))
// Source: Milakov and Gimelshein, Online normalizer calculation for softmax, arXiv:1805.02867 (the shifted
//   form)
#include "device/avo.cuh"

namespace avo {

template <class X, int kBlock, int T, int P, int kN, bool kAhead>
AVO_INLINE void log_softmax_forward(
    const X* __restrict__ x_ptr, int64_t x_stride, X* __restrict__ y_ptr, int64_t y_stride, int64_t M, int64_t N) {
  using C = compute_t<X>;
  using A = accuracy_t<X>;
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
  const auto fetch = [&](int64_t row, Vec<X, V> (&x_to)[P]) {
    if (row < M) {
      tile.load(x_to, x_ptr + row * x_stride);
    } else {
      clear(x_to);
    }
  };
  // kAhead: a persistent block keeps the column operands, and loads the next row before it treats a row.
  Vec<X, V> x_next[P];
  if constexpr (kAhead) fetch(first + own, x_next);
  for (int64_t base = first; base < M; base += step) {
    const int64_t row = base + own;
    const bool live = row < M;
    Vec<X, V> x_vec[P];
    if constexpr (kAhead) {
#pragma unroll
      for (int p = 0; p < P; ++p) x_vec[p] = x_next[p];
      fetch(row + step, x_next);
    } else {
      fetch(row, x_vec);
    }
    C max_x = lowest<C>();
    tile.each([&](int p, int j) {
      max_x = m_max(max_x, x_vec[p][j]);
    });
    row_reduce<Max, T, kBlock>(scratch, turn, max_x);
    C t1 = C(0);
    tile.each([&](int p, int j) {
      const C shifted = x_vec[p][j] - max_x;
      t1 += m_exp<A>(shifted);
    });
    row_reduce<Sum, T, kBlock>(scratch, turn, t1);
    const C t2 = m_log(t1);
#pragma unroll
    for (int p = 0; p < P; ++p) {
      if (!tile.reaches(p)) continue;
      C y_out[V];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const C shifted = x_vec[p][j] - max_x;
        y_out[j] = shifted - t2;
      }
      tile.store(y_ptr + row * y_stride, p, y_out, live);
    }
  }
}

} // namespace avo

#define AVO_KERNEL(NAME, BLOCK, MIN_BLOCKS, X, T, P, N_, AHEAD) \
  extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS) NAME( \
      const avo::X* __restrict__ x_ptr, int64_t x_stride, avo::X* __restrict__ y_ptr, int64_t y_stride, \
      int64_t M, int64_t N) { \
    avo::log_softmax_forward<avo::X, BLOCK, T, P, N_, AHEAD>(x_ptr, x_stride, y_ptr, y_stride, M, N); \
  }

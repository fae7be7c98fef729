// avo::kl_div_rows_forward: row kernel. Written by the generator from definitions/; do not edit.
// sum(p (log(p) - x)) over the last dim; p = target, or exp(target) where the target is a logarithm
// Source: Kullback and Leibler, On Information and Sufficiency, Ann. Math. Statist. 22 (1951), 79-86
#include "device/avo.cuh"

namespace avo {

template <class X, int kBlock, int T, int P, int kN, bool kAhead>
AVO_INLINE void kl_div_rows_forward(
    const X* __restrict__ target_ptr, int64_t target_stride, const X* __restrict__ x_ptr, int64_t x_stride,
    compute_t<X>* __restrict__ loss_ptr, int64_t M, int64_t N) {
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
  const auto fetch = [&](int64_t row, Vec<X, V> (&target_to)[P], Vec<X, V> (&x_to)[P]) {
    if (row < M) {
      tile.load(target_to, target_ptr + row * target_stride);
      tile.load(x_to, x_ptr + row * x_stride);
    } else {
      clear(target_to);
      clear(x_to);
    }
  };
  // kAhead: a persistent block keeps the column operands, and loads the next row before it treats a row.
  Vec<X, V> target_next[P];
  Vec<X, V> x_next[P];
  if constexpr (kAhead) fetch(first + own, target_next, x_next);
  for (int64_t base = first; base < M; base += step) {
    const int64_t row = base + own;
    const bool live = row < M;
    Vec<X, V> target_vec[P];
    Vec<X, V> x_vec[P];
    if constexpr (kAhead) {
#pragma unroll
      for (int p = 0; p < P; ++p) target_vec[p] = target_next[p];
#pragma unroll
      for (int p = 0; p < P; ++p) x_vec[p] = x_next[p];
      fetch(row + step, target_next, x_next);
    } else {
      fetch(row, target_vec, x_vec);
    }
    C t1 = C(0);
    tile.each([&](int p, int j) {
      const C logarithm = m_log(m_where(m_eq(target_vec[p][j], C(0.0)), C(1.0), target_vec[p][j]));
      t1 += target_vec[p][j] * (logarithm - x_vec[p][j]);
    });
    row_reduce<Sum, T, kBlock>(scratch, turn, t1);
    if (live && thread == 0 && loss_ptr) loss_ptr[row] = t1;
  }
}

} // namespace avo

#define AVO_KERNEL(NAME, BLOCK, MIN_BLOCKS, X, T, P, N_, AHEAD) \
  extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS) NAME( \
      const avo::X* __restrict__ target_ptr, int64_t target_stride, const avo::X* __restrict__ x_ptr, \
      int64_t x_stride, avo::compute_t<avo::X>* __restrict__ loss_ptr, int64_t M, int64_t N) { \
    avo::kl_div_rows_forward<avo::X, BLOCK, T, P, N_, AHEAD>(target_ptr, target_stride, x_ptr, x_stride, loss_ptr, M, N); \
  }

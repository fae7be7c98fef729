// avo::gated_rms_norm_backward: row kernel. Written by the generator from definitions/; do not edit.
// rms_norm(x) * silu(gate), or rms_norm(x * silu(gate)) where the order is 'gate_first'
// Source: Dao and Gu, Transformers are SSMs, arXiv:2405.21060, and its published code (RMSNormGated)
#include "device/avo.cuh"

namespace avo {

template <class X, class W, int kBlock, int T, int P, int kN, bool kAhead>
AVO_INLINE void gated_rms_norm_backward(
    const X* __restrict__ x_ptr, int64_t x_stride, const X* __restrict__ gate_ptr, int64_t gate_stride,
    const X* __restrict__ grad_ptr, int64_t grad_stride, const W* __restrict__ weight_ptr,
    const compute_t<X>* __restrict__ rstd_ptr, X* __restrict__ grad_x_ptr, int64_t grad_x_stride,
    X* __restrict__ grad_gate_ptr, int64_t grad_gate_stride, compute_t<X>* __restrict__ partials, int64_t M,
    int64_t N) {
  using C = compute_t<X>;
  using A = accuracy_t<X, W>;
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
  const auto fetch = [&](int64_t row, Vec<X, V> (&x_to)[P], Vec<X, V> (&gate_to)[P], Vec<X, V> (&grad_to)[P], C& rstd_to) {
    if (row < M) {
      tile.load(x_to, x_ptr + row * x_stride);
      tile.load(gate_to, gate_ptr + row * gate_stride);
      tile.load(grad_to, grad_ptr + row * grad_stride);
      rstd_to = rstd_ptr[row];
    } else {
      clear(x_to);
      clear(gate_to);
      clear(grad_to);
      rstd_to = C(0);
    }
  };
  // kAhead: a persistent block keeps the column operands, and loads the next row before it treats a row.
  Vec<X, V> x_next[P];
  Vec<X, V> gate_next[P];
  Vec<X, V> grad_next[P];
  C rstd_next;
  if constexpr (kAhead) fetch(first + own, x_next, gate_next, grad_next, rstd_next);
  for (int64_t base = first; base < M; base += step) {
    const int64_t row = base + own;
    const bool live = row < M;
    Vec<X, V> x_vec[P];
    Vec<X, V> gate_vec[P];
    Vec<X, V> grad_vec[P];
    C rstd;
    if constexpr (kAhead) {
#pragma unroll
      for (int p = 0; p < P; ++p) x_vec[p] = x_next[p];
#pragma unroll
      for (int p = 0; p < P; ++p) gate_vec[p] = gate_next[p];
#pragma unroll
      for (int p = 0; p < P; ++p) grad_vec[p] = grad_next[p];
      rstd = rstd_next;
      fetch(row + step, x_next, gate_next, grad_next, rstd_next);
    } else {
      fetch(row, x_vec, gate_vec, grad_vec, rstd);
    }
    C t1 = C(0);
    tile.each([&](int p, int j) {
      t1 += x_vec[p][j] * (weight_vec[p][j] * (m_x_sigmoid<A>(gate_vec[p][j]) * grad_vec[p][j]));
    });
    row_reduce<Sum, T, kBlock>(scratch, turn, t1);
    const C t2 = rstd * (rstd * (-t1 / C(N)));
#pragma unroll
    for (int p = 0; p < P; ++p) {
      if (!tile.reaches(p)) continue;
      C grad_x_out[V];
      C grad_gate_out[V];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const C y = x_vec[p][j] * rstd;
        const C t3 = m_x_sigmoid<A>(gate_vec[p][j]) * grad_vec[p][j];
        const C t4 = m_sigmoid<A>(gate_vec[p][j]);
        const C y_ = weight_vec[p][j] * y;
        const C t5 = y_ * grad_vec[p][j];
        grad_x_out[j] = m_fma(y, t2, rstd * (weight_vec[p][j] * t3));
        grad_gate_out[j] = m_fma(t4 * m_sigmoid_rest<A>(gate_vec[p][j], t4), gate_vec[p][j] * t5, t4 * t5);
        if (live) sum_grad_weight[p][j] += y * t3;
      }
      tile.store(grad_x_ptr + row * grad_x_stride, p, grad_x_out, live);
      tile.store(grad_gate_ptr + row * grad_gate_stride, p, grad_gate_out, live);
    }
  }
  __shared__ C shared[R > 1 ? T * P * V : 1];
  write_partial<R>(tile, sum_grad_weight, shared, partials + int64_t(blockIdx.x / kBlocks) * N);
}

} // namespace avo

#define AVO_KERNEL(NAME, BLOCK, MIN_BLOCKS, X, W, T, P, N_, AHEAD) \
  extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS) NAME( \
      const avo::X* __restrict__ x_ptr, int64_t x_stride, const avo::X* __restrict__ gate_ptr, \
      int64_t gate_stride, const avo::X* __restrict__ grad_ptr, int64_t grad_stride, \
      const avo::W* __restrict__ weight_ptr, const avo::compute_t<avo::X>* __restrict__ rstd_ptr, \
      avo::X* __restrict__ grad_x_ptr, int64_t grad_x_stride, avo::X* __restrict__ grad_gate_ptr, \
      int64_t grad_gate_stride, avo::compute_t<avo::X>* __restrict__ partials, int64_t M, int64_t N) { \
    avo::gated_rms_norm_backward<avo::X, avo::W, BLOCK, T, P, N_, AHEAD>(x_ptr, x_stride, gate_ptr, gate_stride, grad_ptr, grad_stride, weight_ptr, rstd_ptr, grad_x_ptr, grad_x_stride, grad_gate_ptr, grad_gate_stride, partials, M, N); \
  }

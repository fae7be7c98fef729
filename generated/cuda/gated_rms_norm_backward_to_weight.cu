// avo::gated_rms_norm_backward_to_weight: column kernel. Written by the generator from definitions/; do not edit.
// rms_norm(x) * silu(gate), or rms_norm(x * silu(gate)) where the order is 'gate_first'
// Source: Dao and Gu, Transformers are SSMs, arXiv:2405.21060, and its published code (RMSNormGated)
#include "device/avo.cuh"

namespace avo {

template <class X, int kBlock, int T, int P, int kN, bool kAhead>
AVO_INLINE void gated_rms_norm_backward_to_weight(
    const X* __restrict__ x_ptr, int64_t x_stride, const X* __restrict__ gate_ptr, int64_t gate_stride,
    const X* __restrict__ grad_ptr, int64_t grad_stride, const compute_t<X>* __restrict__ rstd_ptr,
    compute_t<X>* __restrict__ partials, int64_t M, int64_t N) {
  using C = compute_t<X>;
  using A = Fine;
  constexpr int V = kVector<X>;
  constexpr int R = kBlock / T; // rows of a block
  const int thread = thread_of_row<T, kBlock>();
  const int column = int(blockIdx.x) * (T * P * V);
  const bool whole = int64_t(column) + T * P * V <= N && starts_at_chunk(x_ptr, x_stride) && starts_at_chunk(gate_ptr, gate_stride) && starts_at_chunk(grad_ptr, grad_stride);
  const auto body = [&](const auto& tile) {
    let_next_kernel_begin();
    C sum_grad_weight[P][V] = {};
    const int64_t step = int64_t(gridDim.y) * R;
    const int64_t first = int64_t(blockIdx.y) * R;
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
#pragma unroll
      for (int p = 0; p < P; ++p) {
        if (!tile.reaches(p)) continue;
#pragma unroll
        for (int j = 0; j < V; ++j) {
          const C y = x_vec[p][j] * rstd;
          if (live) sum_grad_weight[p][j] += y * (m_x_sigmoid<A>(gate_vec[p][j]) * grad_vec[p][j]);
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
      const avo::X* __restrict__ x_ptr, int64_t x_stride, const avo::X* __restrict__ gate_ptr, \
      int64_t gate_stride, const avo::X* __restrict__ grad_ptr, int64_t grad_stride, \
      const avo::compute_t<avo::X>* __restrict__ rstd_ptr, avo::compute_t<avo::X>* __restrict__ partials, \
      int64_t M, int64_t N) { \
    avo::gated_rms_norm_backward_to_weight<avo::X, BLOCK, T, P, N_, AHEAD>(x_ptr, x_stride, gate_ptr, gate_stride, grad_ptr, grad_stride, rstd_ptr, partials, M, N); \
  }

// avo::sigmoid_gate_backward_to_x_rows: pointwise kernel. Written by the generator from definitions/; do not edit.
// x * sigmoid(gate)
// Source: Dauphin et al., Language Modeling with Gated Convolutional Networks, arXiv:1612.08083
#include "device/avo.cuh"

namespace avo {

template <class X, int kBlock, int T, int P, int kN, bool kAhead>
AVO_INLINE void sigmoid_gate_backward_to_x_rows(
    const X* __restrict__ gate_ptr, int64_t gate_stride, const X* __restrict__ grad_ptr, int64_t grad_stride,
    X* __restrict__ grad_x_ptr, int64_t grad_x_stride, int64_t M, int64_t N) {
  using C = compute_t<X>;
  using A = accuracy_t<X>;
  constexpr int V = kVector<X>;
  constexpr int R = kBlock / T; // rows of a block
  const int thread = thread_of_row<T, kBlock>();
  const int column = int(blockIdx.y) * (T * P * V);
  const bool whole = int64_t(column) + T * P * V <= N && starts_at_chunk(gate_ptr, gate_stride) && starts_at_chunk(grad_ptr, grad_stride) && starts_at_chunk(grad_x_ptr, grad_x_stride);
  const auto body = [&](const auto& tile) {
    const int64_t step = int64_t(gridDim.x) * R;
    const int64_t first = int64_t(blockIdx.x) * R;
    const int own = int(threadIdx.x) / T; // which of the block's rows
    const auto fetch = [&](int64_t row, Vec<X, V> (&gate_to)[P], Vec<X, V> (&grad_to)[P]) {
      if (row < M) {
        tile.load(gate_to, gate_ptr + row * gate_stride);
        tile.load(grad_to, grad_ptr + row * grad_stride);
      } else {
        clear(gate_to);
        clear(grad_to);
      }
    };
    // kAhead: a persistent block keeps the column operands, and loads the next row before it treats a row.
    Vec<X, V> gate_next[P];
    Vec<X, V> grad_next[P];
    if constexpr (kAhead) fetch(first + own, gate_next, grad_next);
    for (int64_t base = first; base < M; base += step) {
      const int64_t row = base + own;
      const bool live = row < M;
      Vec<X, V> gate_vec[P];
      Vec<X, V> grad_vec[P];
      if constexpr (kAhead) {
#pragma unroll
        for (int p = 0; p < P; ++p) gate_vec[p] = gate_next[p];
#pragma unroll
        for (int p = 0; p < P; ++p) grad_vec[p] = grad_next[p];
        fetch(row + step, gate_next, grad_next);
      } else {
        fetch(row, gate_vec, grad_vec);
      }
#pragma unroll
      for (int p = 0; p < P; ++p) {
        if (!tile.reaches(p)) continue;
        C grad_x_out[V];
#pragma unroll
        for (int j = 0; j < V; ++j) {
          grad_x_out[j] = m_sigmoid<A>(gate_vec[p][j]) * grad_vec[p][j];
        }
        tile.store(grad_x_ptr + row * grad_x_stride, p, grad_x_out, live);
      }
    }
  };
  if (whole)
    body(WholeTile<T, P, V>(thread, column, N));
  else
    body(RowTile<T, P, V, kN>(thread, column, N));
}

} // namespace avo

#define AVO_KERNEL(NAME, BLOCK, MIN_BLOCKS, X, T, P, N_, AHEAD) \
  extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS) NAME( \
      const avo::X* __restrict__ gate_ptr, int64_t gate_stride, const avo::X* __restrict__ grad_ptr, \
      int64_t grad_stride, avo::X* __restrict__ grad_x_ptr, int64_t grad_x_stride, int64_t M, int64_t N) { \
    avo::sigmoid_gate_backward_to_x_rows<avo::X, BLOCK, T, P, N_, AHEAD>(gate_ptr, gate_stride, grad_ptr, grad_stride, grad_x_ptr, grad_x_stride, M, N); \
  }

// Generated, do not edit. avo::bias_swiglu_packed_backward_to_bias: column kernel; formula: bias_swiglu_packed_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION bias_swiglu_packed_backward_to_bias
#define AVO_ARGUMENTS up_ptr, up_stride, grad_ptr, grad_stride, gate_ptr, gate_stride, up_bias_ptr, gate_bias_ptr, partials, M, N
#define AVO_PARAMETERS(X, W, ...) \
  const X* __restrict__ up_ptr, int64_t up_stride, const X* __restrict__ grad_ptr, int64_t grad_stride, \
  const X* __restrict__ gate_ptr, int64_t gate_stride, const W* __restrict__ up_bias_ptr, \
  const W* __restrict__ gate_bias_ptr, compute_t<X>* __restrict__ partials, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, class W, int T, int P, int kN, bool kAhead>
AVO_INLINE void bias_swiglu_packed_backward_to_bias(AVO_PARAMETERS(X, W, T)) {
  using C = compute_t<X>;
  using A = accuracy_t<X, W>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const int column = int(blockIdx.x) * (T * P * V);
  const bool whole = int64_t(column) + T * P * V <= N && starts_at_chunk<V>(up_ptr, up_stride) && starts_at_chunk<V>(grad_ptr, grad_stride) && starts_at_chunk<V>(gate_ptr, gate_stride);
  const auto body = [&](const auto& tile) {
    let_next_kernel_begin();
    Vec<W, V> up_bias_vec[P];
    tile.load_columns(up_bias_vec, up_bias_ptr);
    Vec<W, V> gate_bias_vec[P];
    tile.load_columns(gate_bias_vec, gate_bias_ptr);
    C sum_grad_gate_bias[P][V] = {};
    C sum_grad_up_bias[P][V] = {};
    const BlockRows<T, kBlock> rows(blockIdx.y, gridDim.y);
    const auto fetch = [&](int64_t row, Vec<X, V> (&up_to)[P], Vec<X, V> (&grad_to)[P], Vec<X, V> (&gate_to)[P]) {
      if (row < M) {
        tile.load(up_to, up_ptr + row * up_stride);
        tile.load(grad_to, grad_ptr + row * grad_stride);
        tile.load(gate_to, gate_ptr + row * gate_stride);
      } else {
        clear(up_to, grad_to, gate_to);
      }
    };
    Vec<X, V> up_next[P], grad_next[P], gate_next[P];
    if constexpr (kAhead) fetch(rows.first + rows.own, up_next, grad_next, gate_next);
    for (int64_t base = rows.first; base < M; base += rows.step) {
      const int64_t row = base + rows.own;
      const bool live = row < M;
      Vec<X, V> up_vec[P], grad_vec[P], gate_vec[P];
      if constexpr (kAhead) {
        copy(up_vec, up_next);
        copy(grad_vec, grad_next);
        copy(gate_vec, gate_next);
        fetch(row + rows.step, up_next, grad_next, gate_next);
      } else {
        fetch(row, up_vec, grad_vec, gate_vec);
      }
#pragma unroll
      for (int p = 0; p < P; ++p) {
        if (!tile.reaches(p)) continue;
#pragma unroll
        for (int j = 0; j < V; ++j) {
          const C sums = up_vec[p][j] + up_bias_vec[p][j];
          const C t1 = gate_vec[p][j] + gate_bias_vec[p][j];
          const C s = m_sigmoid<A>(t1);
          if (live) sum_grad_gate_bias[p][j] = m_fma(sums * grad_vec[p][j], m_fma(t1, s * m_sigmoid_rest<A>(t1, s), s), sum_grad_gate_bias[p][j]);
          if (live) sum_grad_up_bias[p][j] = m_fma(m_x_sigmoid<A>(t1), grad_vec[p][j], sum_grad_up_bias[p][j]);
        }
      }
    }
    __shared__ C shared[rows.kRows > 1 ? T * P * V : 1];
    write_partial<rows.kRows>(tile, sum_grad_gate_bias, shared, partials + (rows.block * 2 + 0) * N);
    write_partial<rows.kRows>(tile, sum_grad_up_bias, shared, partials + (rows.block * 2 + 1) * N);
  };
  if (whole)
    body(WholeTile<T, P, V>(thread, column, N));
  else
    body(RowTile<T, P, V, kN>(thread, column, N));
}

} // namespace avo

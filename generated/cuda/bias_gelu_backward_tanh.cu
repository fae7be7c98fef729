// Generated, do not edit. avo::bias_gelu_backward_tanh: column kernel; formula: bias_gelu_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION bias_gelu_backward_tanh
#define AVO_ARGUMENTS x_ptr, x_stride, grad_ptr, grad_stride, bias_ptr, grad_x_ptr, grad_x_stride, partials, M, N
#define AVO_PARAMETERS(X, W, ...) \
  const X* __restrict__ x_ptr, int64_t x_stride, const X* __restrict__ grad_ptr, int64_t grad_stride, \
  const W* __restrict__ bias_ptr, X* __restrict__ grad_x_ptr, int64_t grad_x_stride, \
  compute_t<X>* __restrict__ partials, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, class W, int T, int P, int kN, bool kAhead>
AVO_INLINE void bias_gelu_backward_tanh(AVO_PARAMETERS(X, W, T)) {
  using C = compute_t<X>;
  using A = accuracy_t<X, W>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const int column = int(blockIdx.x) * (T * P * V);
  const bool whole = int64_t(column) + T * P * V <= N && starts_at_chunk<V>(x_ptr, x_stride) && starts_at_chunk<V>(grad_ptr, grad_stride) && starts_at_chunk<V>(grad_x_ptr, grad_x_stride);
  const auto body = [&](const auto& tile) {
    let_next_kernel_begin();
    Vec<W, V> bias_vec[P];
    tile.load_columns(bias_vec, bias_ptr);
    C sum_grad_bias[P][V] = {};
    const BlockRows<T, kBlock> rows(blockIdx.y, gridDim.y);
    const auto fetch = [&](int64_t row, Vec<X, V> (&x_to)[P], Vec<X, V> (&grad_to)[P]) {
      if (row < M) {
        tile.load(x_to, x_ptr + row * x_stride);
        tile.load(grad_to, grad_ptr + row * grad_stride);
      } else {
        clear(x_to, grad_to);
      }
    };
    Vec<X, V> x_next[P], grad_next[P];
    if constexpr (kAhead) fetch(rows.first + rows.own, x_next, grad_next);
    for (int64_t base = rows.first; base < M; base += rows.step) {
      const int64_t row = base + rows.own;
      const bool live = row < M;
      Vec<X, V> x_vec[P], grad_vec[P];
      if constexpr (kAhead) {
        copy(x_vec, x_next);
        copy(grad_vec, grad_next);
        fetch(row + rows.step, x_next, grad_next);
      } else {
        fetch(row, x_vec, grad_vec);
      }
#pragma unroll
      for (int p = 0; p < P; ++p) {
        if (!tile.reaches(p)) continue;
        C grad_x_out[V];
#pragma unroll
        for (int j = 0; j < V; ++j) {
          const C t1 = x_vec[p][j] + bias_vec[p][j];
          const C t2 = m_min(m_max(t1, C(-30.0)), C(30.0));
          const C t3 = t2 * C(1.5957691216057308);
          const C t4 = t2 * C(0.044715);
          const C t5 = m_fma(t2, t4, C(1.0));
          const C t6 = t3 * t5;
          const C t7 = m_sigmoid<A>(t6);
          const C t8 = t1 * grad_vec[p][j] * (t7 * m_sigmoid_rest<A>(t6, t7));
          const C t9 = t3 * t8;
          const C t10 = m_fma(t7, grad_vec[p][j], m_where(m_and(m_ge(t1, C(-30.0)), m_le(t1, C(30.0))), m_fma(C(1.5957691216057308), t5 * t8, m_fma(C(0.044715), t2 * t9, t4 * t9)), C(0.0)));
          grad_x_out[j] = t10;
          if (live) sum_grad_bias[p][j] += t10;
        }
        tile.store(grad_x_ptr + row * grad_x_stride, p, grad_x_out, live);
      }
    }
    __shared__ C shared[rows.kRows > 1 ? T * P * V : 1];
    write_partial<rows.kRows>(tile, sum_grad_bias, shared, partials + rows.block * N);
  };
  if (whole)
    body(WholeTile<T, P, V>(thread, column, N));
  else
    body(RowTile<T, P, V, kN>(thread, column, N));
}

} // namespace avo

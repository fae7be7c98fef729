// Generated, do not edit. avo::quick_gelu_backward_rows: pointwise kernel; formula: quick_gelu_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION quick_gelu_backward_rows
#define AVO_ARGUMENTS x_ptr, x_stride, grad_ptr, grad_stride, grad_x_ptr, grad_x_stride, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ x_ptr, int64_t x_stride, const X* __restrict__ grad_ptr, int64_t grad_stride, \
  X* __restrict__ grad_x_ptr, int64_t grad_x_stride, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void quick_gelu_backward_rows(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  using A = accuracy_t<X>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const int column = int(blockIdx.y) * (T * P * V);
  const bool whole = int64_t(column) + T * P * V <= N && starts_at_chunk<V>(x_ptr, x_stride) && starts_at_chunk<V>(grad_ptr, grad_stride) && starts_at_chunk<V>(grad_x_ptr, grad_x_stride);
  const auto body = [&](const auto& tile) {
    const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
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
          const C t1 = x_vec[p][j] * C(1.702);
          const C t2 = m_sigmoid<A>(t1);
          grad_x_out[j] = m_fma(C(1.702), t2 * m_sigmoid_rest<A>(t1, t2) * (x_vec[p][j] * grad_vec[p][j]), t2 * grad_vec[p][j]);
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

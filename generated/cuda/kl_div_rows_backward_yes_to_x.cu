// Generated, do not edit. avo::kl_div_rows_backward_yes_to_x: pointwise kernel; formula: kl_div_rows_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION kl_div_rows_backward_yes_to_x
#define AVO_ARGUMENTS target_ptr, target_stride, grad_ptr, grad_step, grad_x_ptr, grad_x_stride, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ target_ptr, int64_t target_stride, const compute_t<X>* __restrict__ grad_ptr, \
  int64_t grad_step, X* __restrict__ grad_x_ptr, int64_t grad_x_stride, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void kl_div_rows_backward_yes_to_x(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  using A = accuracy_t<X>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const int column = int(blockIdx.y) * (T * P * V);
  const bool whole = int64_t(column) + T * P * V <= N && starts_at_chunk<V>(target_ptr, target_stride) && starts_at_chunk<V>(grad_x_ptr, grad_x_stride);
  const auto body = [&](const auto& tile) {
    const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
    const auto fetch = [&](int64_t row, Vec<X, V> (&target_to)[P], C& grad_to) {
      if (row < M) {
        tile.load(target_to, target_ptr + row * target_stride);
        grad_to = grad_ptr[row * grad_step];
      } else {
        clear(target_to);
        grad_to = C(0);
      }
    };
    Vec<X, V> target_next[P];
    C grad_next;
    if constexpr (kAhead) fetch(rows.first + rows.own, target_next, grad_next);
    for (int64_t base = rows.first; base < M; base += rows.step) {
      const int64_t row = base + rows.own;
      const bool live = row < M;
      Vec<X, V> target_vec[P];
      C grad;
      if constexpr (kAhead) {
        copy(target_vec, target_next);
        grad = grad_next;
        fetch(row + rows.step, target_next, grad_next);
      } else {
        fetch(row, target_vec, grad);
      }
#pragma unroll
      for (int p = 0; p < P; ++p) {
        if (!tile.reaches(p)) continue;
        C grad_x_out[V];
#pragma unroll
        for (int j = 0; j < V; ++j) {
          const C t1 = m_exp<A>(target_vec[p][j]);
          const C weighted = t1 * grad;
          grad_x_out[j] = -weighted;
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

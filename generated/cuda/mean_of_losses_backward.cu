// Generated, do not edit. avo::mean_of_losses_backward: pointwise kernel; formula: mean_of_losses_forward.cu
#include "device/avo.cuh"
#include "device/integers.cuh"

#define AVO_FUNCTION mean_of_losses_backward
#define AVO_ARGUMENTS target_ptr, target_stride, grad_ptr, grad_step, count_ptr, grad_x_ptr, grad_x_stride, ignore_index, M, N
#define AVO_PARAMETERS(X, ...) \
  const int64_t* __restrict__ target_ptr, int64_t target_stride, const compute_t<X>* __restrict__ grad_ptr, \
  int64_t grad_step, const compute_t<X>* __restrict__ count_ptr, X* __restrict__ grad_x_ptr, \
  int64_t grad_x_stride, compute_t<X> ignore_index, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void mean_of_losses_backward(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const int column = int(blockIdx.y) * (T * P * V);
  const bool whole = int64_t(column) + T * P * V <= N && starts_at_chunk<V>(target_ptr, target_stride) && starts_at_chunk<V>(grad_x_ptr, grad_x_stride);
  const auto body = [&](const auto& tile) {
    const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
    const auto fetch = [&](int64_t row, Vec<int64_t, V> (&target_to)[P], C& grad_to, C& count_to) {
      if (row < M) {
        tile.load(target_to, target_ptr + row * target_stride);
        grad_to = grad_ptr[row * grad_step];
        count_to = count_ptr[row];
      } else {
        clear(target_to);
        grad_to = C(0);
        count_to = C(0);
      }
    };
    Vec<int64_t, V> target_next[P];
    C grad_next, count_next;
    if constexpr (kAhead) fetch(rows.first + rows.own, target_next, grad_next, count_next);
    for (int64_t base = rows.first; base < M; base += rows.step) {
      const int64_t row = base + rows.own;
      const bool live = row < M;
      Vec<int64_t, V> target_vec[P];
      C grad, count_;
      if constexpr (kAhead) {
        copy(target_vec, target_next);
        grad = grad_next;
        count_ = count_next;
        fetch(row + rows.step, target_next, grad_next, count_next);
      } else {
        fetch(row, target_vec, grad, count_);
      }
      const C t1 = grad / count_;
#pragma unroll
      for (int p = 0; p < P; ++p) {
        if (!tile.reaches(p)) continue;
        C grad_x_out[V];
#pragma unroll
        for (int j = 0; j < V; ++j) {
          const auto counts = m_ne(ignore_index, m_to_math<C>(target_vec[p].whole(j)));
          grad_x_out[j] = m_where(counts, t1, C(0.0));
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

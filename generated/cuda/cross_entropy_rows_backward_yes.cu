// Generated, do not edit. avo::cross_entropy_rows_backward_yes: pointwise kernel; formula: cross_entropy_rows_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION cross_entropy_rows_backward_yes
#define AVO_ARGUMENTS x_ptr, x_stride, target_ptr, grad_ptr, grad_step, largest_ptr, total_ptr, log_sum_exp_ptr, grad_x_ptr, grad_x_stride, ignore_index, z_loss, label_smoothing, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ x_ptr, int64_t x_stride, const int64_t* __restrict__ target_ptr, \
  const compute_t<X>* __restrict__ grad_ptr, int64_t grad_step, const compute_t<X>* __restrict__ largest_ptr, \
  const compute_t<X>* __restrict__ total_ptr, const compute_t<X>* __restrict__ log_sum_exp_ptr, \
  X* __restrict__ grad_x_ptr, int64_t grad_x_stride, compute_t<X> ignore_index, compute_t<X> z_loss, \
  compute_t<X> label_smoothing, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void cross_entropy_rows_backward_yes(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  using A = accuracy_t<X>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const int column = int(blockIdx.y) * (T * P * V);
  const bool whole = int64_t(column) + T * P * V <= N && starts_at_chunk<V>(x_ptr, x_stride) && starts_at_chunk<V>(grad_x_ptr, grad_x_stride);
  const auto body = [&](const auto& tile) {
    const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
    const auto fetch = [&](int64_t row, Vec<X, V> (&x_to)[P], int64_t& target_to, C& grad_to, C& largest_to, C& total_to, C& log_sum_exp_to) {
      if (row < M) {
        tile.load(x_to, x_ptr + row * x_stride);
        target_to = target_ptr[row];
        grad_to = grad_ptr[row * grad_step];
        largest_to = largest_ptr[row];
        total_to = total_ptr[row];
        log_sum_exp_to = log_sum_exp_ptr[row];
      } else {
        clear(x_to);
        target_to = int64_t(0);
        grad_to = C(0);
        largest_to = C(0);
        total_to = C(0);
        log_sum_exp_to = C(0);
      }
    };
    Vec<X, V> x_next[P];
    C grad_next, largest_next, total_next, log_sum_exp_next;
    int64_t target_next;
    if constexpr (kAhead) fetch(rows.first + rows.own, x_next, target_next, grad_next, largest_next, total_next, log_sum_exp_next);
    for (int64_t base = rows.first; base < M; base += rows.step) {
      const int64_t row = base + rows.own;
      const bool live = row < M;
      Vec<X, V> x_vec[P];
      C grad, largest, total_, log_sum_exp;
      int64_t target;
      if constexpr (kAhead) {
        copy(x_vec, x_next);
        target = target_next;
        grad = grad_next;
        largest = largest_next;
        total_ = total_next;
        log_sum_exp = log_sum_exp_next;
        fetch(row + rows.step, x_next, target_next, grad_next, largest_next, total_next, log_sum_exp_next);
      } else {
        fetch(row, x_vec, target, grad, largest, total_, log_sum_exp);
      }
      const auto t1 = m_eq(C(target), ignore_index);
      const C t2 = m_recip(total_);
      const C share = label_smoothing / C(N);
      const C of_target = C(1.0) - label_smoothing;
      const C of_all = m_fma(C(N), share, of_target);
      const C t3 = m_fma(z_loss * C(2.0), log_sum_exp, of_all);
#pragma unroll
      for (int p = 0; p < P; ++p) {
        if (!tile.reaches(p)) continue;
        C grad_x_out[V];
#pragma unroll
        for (int j = 0; j < V; ++j) {
          const C centred = x_vec[p][j] - largest;
          const C exponential = m_exp<A>(centred);
          const C gradient = m_fma(m_quotient<A>(exponential, total_, t2), t3, -m_where(tile.place(target) == tile.at(p, j), of_target, C(0.0)));
          const C gradient_ = gradient - share;
          grad_x_out[j] = m_where(t1, C(0.0), grad * gradient_);
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

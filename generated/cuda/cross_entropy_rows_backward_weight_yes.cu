// Generated, do not edit. avo::cross_entropy_rows_backward_weight_yes: row kernel; formula: cross_entropy_rows_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION cross_entropy_rows_backward_weight_yes
#define AVO_ARGUMENTS x_ptr, x_stride, weight_ptr, target_ptr, grad_ptr, grad_step, largest_ptr, total_ptr, log_sum_exp_ptr, statistic3_ptr, grad_x_ptr, grad_x_stride, ignore_index, label_smoothing, z_loss, M, N
#define AVO_PARAMETERS(X, W, ...) \
  const X* __restrict__ x_ptr, int64_t x_stride, const W* __restrict__ weight_ptr, \
  const int64_t* __restrict__ target_ptr, const compute_t<X>* __restrict__ grad_ptr, int64_t grad_step, \
  const compute_t<X>* __restrict__ largest_ptr, const compute_t<X>* __restrict__ total_ptr, \
  const compute_t<X>* __restrict__ log_sum_exp_ptr, const compute_t<X>* __restrict__ statistic3_ptr, \
  X* __restrict__ grad_x_ptr, int64_t grad_x_stride, compute_t<X> ignore_index, compute_t<X> label_smoothing, \
  compute_t<X> z_loss, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, class W, int T, int P, int kN, bool kAhead, int kParts = 1>
AVO_INLINE void cross_entropy_rows_backward_weight_yes(AVO_PARAMETERS(X, W, T)) {
  using C = compute_t<X>;
  using A = accuracy_t<X, W>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const RowTile<T, P, V, kN> tile(thread, 0, N);
  __shared__ RowScratch<C, kBlock, T, 1, kParts> scratch;
  int turn = 0;
  Vec<W, V> weight_vec[P];
  tile.load_columns(weight_vec, weight_ptr);
  announce_row<T, kBlock>();
  const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
  const auto fetch = [&](int64_t row, Vec<X, V> (&x_to)[P], int64_t& target_to, C& grad_to, C& largest_to, C& total_to, C& log_sum_exp_to, C& statistic3_to) {
    if (row < M) {
      tile.load(x_to, x_ptr + row * x_stride);
      target_to = target_ptr[row];
      grad_to = grad_ptr[row * grad_step];
      largest_to = largest_ptr[row];
      total_to = total_ptr[row];
      log_sum_exp_to = log_sum_exp_ptr[row];
      statistic3_to = statistic3_ptr[row];
    } else {
      clear(x_to);
      target_to = int64_t(0);
      grad_to = C(0);
      largest_to = C(0);
      total_to = C(0);
      log_sum_exp_to = C(0);
      statistic3_to = C(0);
    }
  };
  Vec<X, V> x_next[P];
  C grad_next, largest_next, total_next, log_sum_exp_next, statistic3_next;
  int64_t target_next;
  if constexpr (kAhead) fetch(rows.first + rows.own, x_next, target_next, grad_next, largest_next, total_next, log_sum_exp_next, statistic3_next);
  for (int64_t base = rows.first; base < M; base += rows.step) {
    const int64_t row = base + rows.own;
    const bool live = row < M;
    Vec<X, V> x_vec[P];
    C grad, largest, total_, log_sum_exp, statistic3;
    int64_t target;
    if constexpr (kAhead) {
      copy(x_vec, x_next);
      target = target_next;
      grad = grad_next;
      largest = largest_next;
      total_ = total_next;
      log_sum_exp = log_sum_exp_next;
      statistic3 = statistic3_next;
      fetch(row + rows.step, x_next, target_next, grad_next, largest_next, total_next, log_sum_exp_next, statistic3_next);
    } else {
      fetch(row, x_vec, target, grad, largest, total_, log_sum_exp, statistic3);
    }
    if (base == rows.first) await_row<T, kBlock>();
    const auto t1 = m_eq(C(target), ignore_index);
    const C share = label_smoothing / C(N);
    const C t2 = m_recip(total_);
    const C t3 = z_loss * C(2.0);
    const C of_target = (C(1.0) - label_smoothing) * statistic3;
    RowSum<C, V> sum_weight;
    tile.each([&](int p, int j, bool whole) {
      sum_weight.add(weight_vec[p][j], j, whole);
    });
    row_reduce<Sum, T, kBlock>(scratch, turn, sum_weight.total);
    const C of_all = m_fma(sum_weight.total, share, of_target);
    const C t4 = m_fma(t3, log_sum_exp, of_all);
#pragma unroll
    for (int p = 0; p < P; ++p) {
      if (!tile.reaches(p)) continue;
      C grad_x_out[V];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const C centred = x_vec[p][j] - largest;
        const C exponential = m_exp<A>(centred);
        const C gradient = m_fma(m_quotient<A>(exponential, total_, t2), t4, -m_where(tile.place(target) == tile.at(p, j), of_target, C(0.0)));
        const C gradient_ = m_fma(-weight_vec[p][j], share, gradient);
        grad_x_out[j] = m_where(t1, C(0.0), grad * gradient_);
      }
      tile.store(grad_x_ptr + row * grad_x_stride, p, grad_x_out, live);
    }
  }
}

} // namespace avo

// Generated, do not edit. avo::cross_entropy_rows_backward_weight_yes_loop: loop kernel; formula: cross_entropy_rows_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION cross_entropy_rows_backward_weight_yes_loop
#define AVO_ARGUMENTS x_ptr, x_stride, weight_ptr, target_ptr, grad_ptr, grad_step, largest_ptr, total_ptr, log_sum_exp_ptr, statistic3_ptr, grad_x_ptr, grad_x_stride, ignore_index, label_smoothing, z_loss, M, N
#define AVO_PARAMETERS(X, W, ...) \
  const X* __restrict__ x_ptr, int64_t x_stride, const W* __restrict__ weight_ptr, \
  const int64_t* __restrict__ target_ptr, const compute_t<X>* __restrict__ grad_ptr, int64_t grad_step, \
  const compute_t<X>* __restrict__ largest_ptr, const compute_t<X>* __restrict__ total_ptr, \
  const compute_t<X>* __restrict__ log_sum_exp_ptr, const compute_t<X>* __restrict__ statistic3_ptr, \
  X* __restrict__ grad_x_ptr, int64_t grad_x_stride, compute_t<X> ignore_index, compute_t<X> label_smoothing, \
  compute_t<X> z_loss, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, class W, int T, int P, int kN, bool kAhead>
AVO_INLINE void cross_entropy_rows_backward_weight_yes_loop(AVO_PARAMETERS(X, W, T)) {
  using C = compute_t<X>;
  using A = accuracy_t<X, W>;
  constexpr int V = kVector<X>;
  const int thread = thread_of_row<T, kBlock>();
  __shared__ RowScratch<C, kBlock, T, 1> scratch;
  int turn = 0;
  const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
  for (int64_t base = rows.first; base < M; base += rows.step) {
    const int64_t row = base + rows.own;
    const bool live = row < M;
    const int64_t target = live ? target_ptr[row] : int64_t(0);
    const C grad = live ? grad_ptr[row * grad_step] : C(0);
    const C largest = live ? largest_ptr[row] : C(0);
    const C total_ = live ? total_ptr[row] : C(0);
    const C log_sum_exp = live ? log_sum_exp_ptr[row] : C(0);
    const C statistic3 = live ? statistic3_ptr[row] : C(0);
    const auto t1 = m_eq(C(target), ignore_index);
    const C share = label_smoothing / C(N);
    const C t2 = m_recip(total_);
    const C t3 = z_loss * C(2.0);
    const C of_target = (C(1.0) - label_smoothing) * statistic3;
    RowSum<C, V> sum_weight;
    for (int64_t column = 0; column < N; column += T * P * V) {
      const RowTile<T, P, V, kN, int64_t> tile(thread, column, N);
      Vec<W, V> weight_vec[P];
      tile.load_columns(weight_vec, weight_ptr);
      tile.each([&](int p, int j, bool whole) {
        sum_weight.add(weight_vec[p][j], j, whole);
      });
    }
    row_reduce<Sum, T, kBlock>(scratch, turn, sum_weight.total);
    const C of_all = m_fma(sum_weight.total, share, of_target);
    const C t4 = m_fma(t3, log_sum_exp, of_all);
    for (int64_t column = 0; column < N; column += T * P * V) {
      const RowTile<T, P, V, kN, int64_t> tile(thread, column, N);
      Vec<X, V> x_vec[P];
      if (live)
        tile.load(x_vec, x_ptr + row * x_stride);
      else
        clear(x_vec);
      Vec<W, V> weight_vec[P];
      tile.load_columns(weight_vec, weight_ptr);
#pragma unroll
      for (int p = 0; p < P; ++p) {
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
}

} // namespace avo

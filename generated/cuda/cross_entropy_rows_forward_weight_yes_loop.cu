// Generated, do not edit. avo::cross_entropy_rows_forward_weight_yes_loop: loop kernel; formula: cross_entropy_rows_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION cross_entropy_rows_forward_weight_yes_loop
#define AVO_ARGUMENTS x_ptr, x_stride, weight_ptr, target_ptr, loss_ptr, largest_ptr, total_ptr, log_sum_exp_ptr, statistic3_ptr, ignore_index, z_loss, label_smoothing, M, N
#define AVO_PARAMETERS(X, W, ...) \
  const X* __restrict__ x_ptr, int64_t x_stride, const W* __restrict__ weight_ptr, \
  const int64_t* __restrict__ target_ptr, compute_t<X>* __restrict__ loss_ptr, \
  compute_t<X>* __restrict__ largest_ptr, compute_t<X>* __restrict__ total_ptr, \
  compute_t<X>* __restrict__ log_sum_exp_ptr, compute_t<X>* __restrict__ statistic3_ptr, \
  compute_t<X> ignore_index, compute_t<X> z_loss, compute_t<X> label_smoothing, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, class W, int T, int P, int kN, bool kAhead>
AVO_INLINE void cross_entropy_rows_forward_weight_yes_loop(AVO_PARAMETERS(X, W, T)) {
  using C = compute_t<X>;
  using A = accuracy_t<X, W>;
  constexpr int V = kVector<X>;
  const int thread = thread_of_row<T, kBlock>();
  __shared__ RowScratch<C, kBlock, T, 2> scratch;
  int turn = 0;
  const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
  for (int64_t base = rows.first; base < M; base += rows.step) {
    const int64_t row = base + rows.own;
    const bool live = row < M;
    const int64_t target = live ? target_ptr[row] : int64_t(0);
    const auto t1 = m_eq(C(target), ignore_index);
    const auto t2 = m_and(m_ge(C(target), C(0.0)), m_lt(C(target), C(N)));
    const C t3 = C(1.0) - label_smoothing;
    C t4 = C(0);
    if (live && target >= 0 && target < N) {
      t4 = C(widen(x_ptr[row * x_stride + target]));
    }
    C t5 = C(0);
    if (live && target >= 0 && target < N) {
      t5 = C(widen(weight_ptr[target]));
    }
    const C share = label_smoothing / C(N);
    C largest = lowest<C>();
    RowSum<C, V> t6;
    RowSum<C, V> sum_weight;
    for (int64_t column = 0; column < N; column += T * P * V) {
      const RowTile<T, P, V, kN, int64_t> tile(thread, column, N);
      Vec<X, V> x_vec[P];
      if (live)
        tile.load(x_vec, x_ptr + row * x_stride);
      else
        clear(x_vec);
      Vec<W, V> weight_vec[P];
      tile.load_columns(weight_vec, weight_ptr);
      const C largest_before = largest;
      extreme<Max>(tile, x_vec, largest);
      tile.each([&](int p, int j, bool whole) {
        sum_weight.add(weight_vec[p][j], j, whole);
      });
      const C largest_here = largest == lowest<C>() ? C(0) : largest;
      t6.total *= m_exp<A>(largest_before - largest_here);
      tile.each([&](int p, int j, bool whole) {
        const C centred = x_vec[p][j] - largest_here;
        const C exponential = m_exp_summand<A>(centred);
        t6.add(exponential, j, whole);
      });
    }
    const C largest_here = largest;
    row_reduce<Max, T, kBlock>(scratch, turn, largest);
    t6.total *= m_exp<A>(largest_here - largest);
    row_reduce<Sum, T, kBlock>(scratch, turn, t6.total, sum_weight.total);
    const C log_sum = m_log(t6.total);
    const C log_sum_exp = largest + log_sum;
    const C t7 = log_sum_exp * log_sum_exp;
    const C of_target = t4 - largest;
    const C loss = log_sum - of_target;
    const C loss_ = loss * t5;
    RowSum<C, V> sum_weighted;
    for (int64_t column = 0; column < N; column += T * P * V) {
      const RowTile<T, P, V, kN, int64_t> tile(thread, column, N);
      Vec<X, V> x_vec[P];
      if (live)
        tile.load(x_vec, x_ptr + row * x_stride);
      else
        clear(x_vec);
      Vec<W, V> weight_vec[P];
      tile.load_columns(weight_vec, weight_ptr);
      tile.each([&](int p, int j, bool whole) {
        const C centred = x_vec[p][j] - largest;
        sum_weighted.add_product(weight_vec[p][j], centred, j, whole);
      });
    }
    row_reduce<Sum, T, kBlock>(scratch, turn, sum_weighted.total);
    const C others = m_fma(log_sum, sum_weight.total, -sum_weighted.total);
    const C loss__ = m_fma(t3, loss_, share * others);
    const C loss___ = m_fma(z_loss, t7, loss__);
    const C loss____ = m_where(t2, loss___, quiet_nan<C>());
    const C t8 = m_where(t1, C(0.0), loss____);
    if (live && thread == 0 && loss_ptr) loss_ptr[row] = t8;
    if (live && thread == 0 && largest_ptr) largest_ptr[row] = largest;
    if (live && thread == 0 && total_ptr) total_ptr[row] = t6.total;
    if (live && thread == 0 && log_sum_exp_ptr) log_sum_exp_ptr[row] = log_sum_exp;
    if (live && thread == 0 && statistic3_ptr) statistic3_ptr[row] = t5;
  }
}

} // namespace avo

// Generated, do not edit. avo::cross_entropy_rows_forward_weight_yes: row kernel; formula: cross_entropy_rows_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION cross_entropy_rows_forward_weight_yes
#define AVO_ARGUMENTS x_ptr, x_stride, weight_ptr, target_ptr, loss_ptr, largest_ptr, total_ptr, log_sum_exp_ptr, statistic3_ptr, ignore_index, z_loss, label_smoothing, M, N
#define AVO_PARAMETERS(X, W, ...) \
  const X* __restrict__ x_ptr, int64_t x_stride, const W* __restrict__ weight_ptr, \
  const int64_t* __restrict__ target_ptr, compute_t<X>* __restrict__ loss_ptr, \
  compute_t<X>* __restrict__ largest_ptr, compute_t<X>* __restrict__ total_ptr, \
  compute_t<X>* __restrict__ log_sum_exp_ptr, compute_t<X>* __restrict__ statistic3_ptr, \
  compute_t<X> ignore_index, compute_t<X> z_loss, compute_t<X> label_smoothing, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, class W, int T, int P, int kN, bool kAhead, int kParts = 1>
AVO_INLINE void cross_entropy_rows_forward_weight_yes(AVO_PARAMETERS(X, W, T)) {
  using C = compute_t<X>;
  using A = accuracy_t<X, W>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const RowTile<T, P, V, kN> tile(thread, 0, N);
  __shared__ RowScratch<C, kBlock, T, 3, kParts> scratch;
  int turn = 0;
  Vec<W, V> weight_vec[P];
  tile.load_columns(weight_vec, weight_ptr);
  announce_row<T, kBlock>();
  const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
  const auto fetch = [&](int64_t row, Vec<X, V> (&x_to)[P], int64_t& target_to) {
    if (row < M) {
      tile.load(x_to, x_ptr + row * x_stride);
      target_to = target_ptr[row];
    } else {
      clear(x_to);
      target_to = int64_t(0);
    }
  };
  Vec<X, V> x_next[P];
  int64_t target_next;
  if constexpr (kAhead) fetch(rows.first + rows.own, x_next, target_next);
  for (int64_t base = rows.first; base < M; base += rows.step) {
    const int64_t row = base + rows.own;
    const bool live = row < M;
    Vec<X, V> x_vec[P];
    int64_t target;
    if constexpr (kAhead) {
      copy(x_vec, x_next);
      target = target_next;
      fetch(row + rows.step, x_next, target_next);
    } else {
      fetch(row, x_vec, target);
    }
    if (base == rows.first) await_row<T, kBlock>();
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
    extreme<Max>(tile, x_vec, largest);
    row_reduce<Max, T, kBlock>(scratch, turn, largest);
    hold_packed(x_vec);
    const C of_target = t4 - largest;
    RowSum<C, V> t6;
    RowSum<C, V> sum_weight;
    RowSum<C, V> sum_weighted;
    tile.each([&](int p, int j, bool whole) {
      const C centred = x_vec[p][j] - largest;
      const C exponential = m_exp_summand<A>(centred);
      t6.add(exponential, j, whole);
      sum_weight.add(weight_vec[p][j], j, whole);
      sum_weighted.add_product(weight_vec[p][j], centred, j, whole);
    });
    row_reduce<Sum, T, kBlock>(scratch, turn, t6.total, sum_weight.total, sum_weighted.total);
    hold_packed(x_vec);
    const C log_sum = m_log(t6.total);
    const C log_sum_exp = largest + log_sum;
    const C loss = log_sum - of_target;
    const C loss_ = loss * t5;
    const C others = m_fma(log_sum, sum_weight.total, -sum_weighted.total);
    const C loss__ = m_fma(t3, loss_, share * others);
    const C loss___ = m_fma(z_loss, log_sum_exp * log_sum_exp, loss__);
    const C loss____ = m_where(t2, loss___, quiet_nan<C>());
    const C t7 = m_where(t1, C(0.0), loss____);
    if (live && thread == 0 && loss_ptr) loss_ptr[row] = t7;
    if (live && thread == 0 && largest_ptr) largest_ptr[row] = largest;
    if (live && thread == 0 && total_ptr) total_ptr[row] = t6.total;
    if (live && thread == 0 && log_sum_exp_ptr) log_sum_exp_ptr[row] = log_sum_exp;
    if (live && thread == 0 && statistic3_ptr) statistic3_ptr[row] = t5;
  }
}

} // namespace avo

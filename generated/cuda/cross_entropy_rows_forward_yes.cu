// Generated, do not edit. avo::cross_entropy_rows_forward_yes: row kernel; formula: cross_entropy_rows_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION cross_entropy_rows_forward_yes
#define AVO_ARGUMENTS x_ptr, x_stride, target_ptr, loss_ptr, largest_ptr, total_ptr, log_sum_exp_ptr, statistic3_ptr, ignore_index, z_loss, label_smoothing, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ x_ptr, int64_t x_stride, const int64_t* __restrict__ target_ptr, \
  compute_t<X>* __restrict__ loss_ptr, compute_t<X>* __restrict__ largest_ptr, \
  compute_t<X>* __restrict__ total_ptr, compute_t<X>* __restrict__ log_sum_exp_ptr, \
  compute_t<X>* __restrict__ statistic3_ptr, compute_t<X> ignore_index, compute_t<X> z_loss, \
  compute_t<X> label_smoothing, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead, int kParts = 1>
AVO_INLINE void cross_entropy_rows_forward_yes(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  using A = accuracy_t<X>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const RowTile<T, P, V, kN> tile(thread, 0, N);
  __shared__ RowScratch<C, kBlock, T, 2, kParts> scratch;
  int turn = 0;
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
    const C of_target = C(1.0) - label_smoothing;
    C t3 = C(0);
    if (live && target >= 0 && target < N) {
      t3 = C(widen(x_ptr[row * x_stride + target]));
    }
    const C share = label_smoothing / C(N);
    C largest = lowest<C>();
    extreme<Max>(tile, x_vec, largest);
    row_reduce<Max, T, kBlock>(scratch, turn, largest);
    hold_packed(x_vec);
    const C of_target_ = t3 - largest;
    RowSum<C, V> t4;
    RowSum<C, V> sum_centred;
    tile.each([&](int p, int j, bool whole) {
      const C centred = x_vec[p][j] - largest;
      const C exponential = m_exp_summand<A>(centred);
      t4.add(exponential, j, whole);
      sum_centred.add(centred, j, whole);
    });
    row_reduce<Sum, T, kBlock>(scratch, turn, t4.total, sum_centred.total);
    hold_packed(x_vec);
    const C log_sum = m_log(t4.total);
    const C log_sum_exp = largest + log_sum;
    const C loss = log_sum - of_target_;
    const C others = m_fma(log_sum, C(N), -sum_centred.total);
    const C loss_ = m_fma(of_target, loss, share * others);
    const C loss__ = m_fma(z_loss, log_sum_exp * log_sum_exp, loss_);
    const C loss___ = m_where(t2, loss__, quiet_nan<C>());
    const C t5 = m_where(t1, C(0.0), loss___);
    if (live && thread == 0 && loss_ptr) loss_ptr[row] = t5;
    if (live && thread == 0 && largest_ptr) largest_ptr[row] = largest;
    if (live && thread == 0 && total_ptr) total_ptr[row] = t4.total;
    if (live && thread == 0 && log_sum_exp_ptr) log_sum_exp_ptr[row] = log_sum_exp;
    if (live && thread == 0 && statistic3_ptr) statistic3_ptr[row] = C(0.0);
  }
}

} // namespace avo

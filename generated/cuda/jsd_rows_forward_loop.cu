// Generated, do not edit. avo::jsd_rows_forward_loop: loop kernel; formula: jsd_rows_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION jsd_rows_forward_loop
#define AVO_ARGUMENTS target_ptr, target_stride, x_ptr, x_stride, loss_ptr, beta, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ target_ptr, int64_t target_stride, const X* __restrict__ x_ptr, int64_t x_stride, \
  compute_t<X>* __restrict__ loss_ptr, compute_t<X> beta, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void jsd_rows_forward_loop(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  using A = accuracy_t<X>;
  constexpr int V = kVector<X>;
  const int thread = thread_of_row<T, kBlock>();
  __shared__ RowScratch<C, kBlock, T, 1> scratch;
  int turn = 0;
  const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
  for (int64_t base = rows.first; base < M; base += rows.step) {
    const int64_t row = base + rows.own;
    const bool live = row < M;
    const C t1 = C(1.0) - beta;
    RowSum<C, V> t2;
    for (int64_t column = 0; column < N; column += T * P * V) {
      const RowTile<T, P, V, kN, int64_t> tile(thread, column, N);
      Vec<X, V> target_vec[P];
      if (live)
        tile.load(target_vec, target_ptr + row * target_stride);
      else
        clear(target_vec);
      Vec<X, V> x_vec[P];
      if (live)
        tile.load(x_vec, x_ptr + row * x_stride);
      else
        clear(x_vec);
      tile.each([&](int p, int j, bool whole) {
        const C difference = m_max(target_vec[p][j], C(-1000.0)) - m_max(x_vec[p][j], C(-1000.0));
        const auto larger = m_ge(difference, C(0.0));
        const C below = m_where(larger, -difference, difference);
        const C ratio = m_where(m_gt(below, C(-1.0)), m_expm1(m_max(below, C(-1.0))), m_exp<A>(below) - C(1.0));
        const C t3 = m_log1p(m_where(larger, ratio * t1, beta * ratio));
        const C of_larger = -t3;
        t2.add(m_fma(t1, m_where(larger, of_larger - difference, of_larger) * m_exp<A>(x_vec[p][j]), beta * (m_where(larger, of_larger, difference - t3) * m_exp<A>(target_vec[p][j]))), j, whole);
      });
    }
    row_reduce<Sum, T, kBlock>(scratch, turn, t2.total);
    if (live && thread == 0 && loss_ptr) loss_ptr[row] = t2.total;
  }
}

} // namespace avo

// Generated, do not edit. avo::jsd_rows_forward: row kernel
// sum(beta p (log(p) - log(m)) + (1 - beta) q (log(q) - log(m))) over the last dim; p = exp(target), q =
//   exp(x), m = beta p + (1 - beta) q
// Source: Lin, Divergence Measures Based on the Shannon Entropy, IEEE Trans. Inf. Theory 37 (1991), 145-151;
//   Agarwal et al., On-Policy Distillation of Language Models, arXiv:2306.13649 (beta)
#include "device/avo.cuh"

#define AVO_FUNCTION jsd_rows_forward
#define AVO_ARGUMENTS target_ptr, target_stride, x_ptr, x_stride, loss_ptr, beta, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ target_ptr, int64_t target_stride, const X* __restrict__ x_ptr, int64_t x_stride, \
  compute_t<X>* __restrict__ loss_ptr, compute_t<X> beta, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead, int kParts = 1>
AVO_INLINE void jsd_rows_forward(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  using A = accuracy_t<X>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const RowTile<T, P, V, kN> tile(thread, 0, N);
  __shared__ RowScratch<C, kBlock, T, 1, kParts> scratch;
  int turn = 0;
  announce_row<T, kBlock>();
  const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
  const auto fetch = [&](int64_t row, Vec<X, V> (&target_to)[P], Vec<X, V> (&x_to)[P]) {
    if (row < M) {
      tile.load(target_to, target_ptr + row * target_stride);
      tile.load(x_to, x_ptr + row * x_stride);
    } else {
      clear(target_to, x_to);
    }
  };
  Vec<X, V> target_next[P], x_next[P];
  if constexpr (kAhead) fetch(rows.first + rows.own, target_next, x_next);
  for (int64_t base = rows.first; base < M; base += rows.step) {
    const int64_t row = base + rows.own;
    const bool live = row < M;
    Vec<X, V> target_vec[P], x_vec[P];
    if constexpr (kAhead) {
      copy(target_vec, target_next);
      copy(x_vec, x_next);
      fetch(row + rows.step, target_next, x_next);
    } else {
      fetch(row, target_vec, x_vec);
    }
    if (base == rows.first) await_row<T, kBlock>();
    const C t1 = C(1.0) - beta;
    RowSum<C, V> t2;
    tile.each([&](int p, int j, bool whole) {
      const C difference = m_max(target_vec[p][j], C(-1000.0)) - m_max(x_vec[p][j], C(-1000.0));
      const auto larger = m_ge(difference, C(0.0));
      const C below = m_where(larger, -difference, difference);
      const C ratio = m_where(m_gt(below, C(-1.0)), m_expm1(m_max(below, C(-1.0))), m_exp<A>(below) - C(1.0));
      const C t3 = m_log1p(m_where(larger, ratio * t1, beta * ratio));
      const C of_larger = -t3;
      t2.add(m_fma(t1, m_where(larger, of_larger - difference, of_larger) * m_exp<A>(x_vec[p][j]), beta * (m_where(larger, of_larger, difference - t3) * m_exp<A>(target_vec[p][j]))), j, whole);
    });
    row_reduce<Sum, T, kBlock>(scratch, turn, t2.total);
    if (live && thread == 0 && loss_ptr) loss_ptr[row] = t2.total;
  }
}

} // namespace avo

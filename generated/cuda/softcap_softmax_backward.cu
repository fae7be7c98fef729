// Generated, do not edit. avo::softcap_softmax_backward: row kernel; formula: softcap_softmax_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION softcap_softmax_backward
#define AVO_ARGUMENTS x_ptr, x_stride, grad_ptr, grad_stride, y_ptr, y_stride, statistic0_ptr, statistic1_ptr, grad_x_ptr, grad_x_stride, cap, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ x_ptr, int64_t x_stride, const X* __restrict__ grad_ptr, int64_t grad_stride, \
  const X* __restrict__ y_ptr, int64_t y_stride, const compute_t<X>* __restrict__ statistic0_ptr, \
  const compute_t<X>* __restrict__ statistic1_ptr, X* __restrict__ grad_x_ptr, int64_t grad_x_stride, \
  compute_t<X> cap, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead, int kParts = 1>
AVO_INLINE void softcap_softmax_backward(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  using A = accuracy_t<X>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const RowTile<T, P, V, kN> tile(thread, 0, N);
  __shared__ RowScratch<C, kBlock, T, 1, kParts> scratch;
  int turn = 0;
  announce_row<T, kBlock>();
  const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
  const auto fetch = [&](int64_t row, Vec<X, V> (&x_to)[P], Vec<X, V> (&grad_to)[P], Vec<X, V> (&y_to)[P], C& statistic0_to, C& statistic1_to) {
    if (row < M) {
      tile.load(x_to, x_ptr + row * x_stride);
      tile.load(grad_to, grad_ptr + row * grad_stride);
      tile.load(y_to, y_ptr + row * y_stride);
      statistic0_to = statistic0_ptr[row];
      statistic1_to = statistic1_ptr[row];
    } else {
      clear(x_to, grad_to, y_to);
      statistic0_to = C(0);
      statistic1_to = C(0);
    }
  };
  Vec<X, V> x_next[P], grad_next[P], y_next[P];
  C statistic0_next, statistic1_next;
  if constexpr (kAhead) fetch(rows.first + rows.own, x_next, grad_next, y_next, statistic0_next, statistic1_next);
  for (int64_t base = rows.first; base < M; base += rows.step) {
    const int64_t row = base + rows.own;
    const bool live = row < M;
    Vec<X, V> x_vec[P], grad_vec[P], y_vec[P];
    C statistic0, statistic1;
    if constexpr (kAhead) {
      copy(x_vec, x_next);
      copy(grad_vec, grad_next);
      copy(y_vec, y_next);
      statistic0 = statistic0_next;
      statistic1 = statistic1_next;
      fetch(row + rows.step, x_next, grad_next, y_next, statistic0_next, statistic1_next);
    } else {
      fetch(row, x_vec, grad_vec, y_vec, statistic0, statistic1);
    }
    if (base == rows.first) await_row<T, kBlock>();
    const C t1 = m_recip(cap);
    const C t2 = -statistic0;
    RowSum<C, V> t3;
    tile.each([&](int p, int j, bool whole) {
      t3.add_product(statistic1 * y_vec[p][j], -grad_vec[p][j], j, whole);
    });
    row_reduce<Sum, T, kBlock>(scratch, turn, t3.total);
#pragma unroll
    for (int p = 0; p < P; ++p) {
      if (!tile.reaches(p)) continue;
      C grad_x_out[V];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const C t4 = m_tanh(m_quotient<A>(x_vec[p][j], cap, t1));
        const C shifted = m_exp<A>(m_fma(cap, t4, t2));
        grad_x_out[j] = m_quotient<A>(m_fma(-t4, t4, C(1.0)) * (cap * (shifted * m_fma(statistic1, grad_vec[p][j], t3.total))), cap, t1);
      }
      tile.store(grad_x_ptr + row * grad_x_stride, p, grad_x_out, live);
    }
  }
}

} // namespace avo

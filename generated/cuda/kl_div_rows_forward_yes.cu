// Generated, do not edit. avo::kl_div_rows_forward_yes: row kernel; formula: kl_div_rows_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION kl_div_rows_forward_yes
#define AVO_ARGUMENTS target_ptr, target_stride, x_ptr, x_stride, loss_ptr, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ target_ptr, int64_t target_stride, const X* __restrict__ x_ptr, int64_t x_stride, \
  compute_t<X>* __restrict__ loss_ptr, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead, int kParts = 1>
AVO_INLINE void kl_div_rows_forward_yes(AVO_PARAMETERS(X, T)) {
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
    RowSum<C, V> t1;
    tile.each([&](int p, int j, bool whole) {
      const C t2 = m_exp<A>(target_vec[p][j]);
      t1.add_product(t2, m_max(target_vec[p][j], C(-1000.0)) - m_where(m_eq(t2, C(0.0)), C(0.0), x_vec[p][j]), j, whole);
    });
    row_reduce<Sum, T, kBlock>(scratch, turn, t1.total);
    if (live && thread == 0 && loss_ptr) loss_ptr[row] = t1.total;
  }
}

} // namespace avo

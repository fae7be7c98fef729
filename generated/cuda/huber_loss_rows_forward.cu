// Generated, do not edit. avo::huber_loss_rows_forward: row kernel
// sum of d^2 / 2 where d = |x - target| <= delta, delta (d - delta / 2) beyond, over the last dim
// Source: Huber, Robust Estimation of a Location Parameter, Ann. Math. Statist. 35 (1964), 73-101
#include "device/avo.cuh"

#define AVO_FUNCTION huber_loss_rows_forward
#define AVO_ARGUMENTS x_ptr, x_stride, target_ptr, target_stride, loss_ptr, delta, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ x_ptr, int64_t x_stride, const X* __restrict__ target_ptr, int64_t target_stride, \
  compute_t<X>* __restrict__ loss_ptr, compute_t<X> delta, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead, int kParts = 1>
AVO_INLINE void huber_loss_rows_forward(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const RowTile<T, P, V, kN> tile(thread, 0, N);
  __shared__ RowScratch<C, kBlock, T, 1, kParts> scratch;
  int turn = 0;
  announce_row<T, kBlock>();
  const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
  const auto fetch = [&](int64_t row, Vec<X, V> (&x_to)[P], Vec<X, V> (&target_to)[P]) {
    if (row < M) {
      tile.load(x_to, x_ptr + row * x_stride);
      tile.load(target_to, target_ptr + row * target_stride);
    } else {
      clear(x_to, target_to);
    }
  };
  Vec<X, V> x_next[P], target_next[P];
  if constexpr (kAhead) fetch(rows.first + rows.own, x_next, target_next);
  for (int64_t base = rows.first; base < M; base += rows.step) {
    const int64_t row = base + rows.own;
    const bool live = row < M;
    Vec<X, V> x_vec[P], target_vec[P];
    if constexpr (kAhead) {
      copy(x_vec, x_next);
      copy(target_vec, target_next);
      fetch(row + rows.step, x_next, target_next);
    } else {
      fetch(row, x_vec, target_vec);
    }
    if (base == rows.first) await_row<T, kBlock>();
    RowSum<C, V> t1;
    tile.each([&](int p, int j, bool whole) {
      const C distance = m_abs(x_vec[p][j] - target_vec[p][j]);
      const C inner = m_min(delta, distance);
      t1.add_product(inner, m_fma(-inner, C(0.5), distance), j, whole);
    });
    row_reduce<Sum, T, kBlock>(scratch, turn, t1.total);
    if (live && thread == 0 && loss_ptr) loss_ptr[row] = t1.total;
  }
}

} // namespace avo

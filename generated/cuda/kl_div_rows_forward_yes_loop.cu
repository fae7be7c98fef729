// Generated, do not edit. avo::kl_div_rows_forward_yes_loop: loop kernel; formula: kl_div_rows_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION kl_div_rows_forward_yes_loop
#define AVO_ARGUMENTS target_ptr, target_stride, x_ptr, x_stride, loss_ptr, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ target_ptr, int64_t target_stride, const X* __restrict__ x_ptr, int64_t x_stride, \
  compute_t<X>* __restrict__ loss_ptr, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void kl_div_rows_forward_yes_loop(AVO_PARAMETERS(X, T)) {
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
    RowSum<C, V> t1;
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
        const C t2 = m_exp<A>(target_vec[p][j]);
        t1.add_product(t2, m_max(target_vec[p][j], C(-1000.0)) - m_where(m_eq(t2, C(0.0)), C(0.0), x_vec[p][j]), j, whole);
      });
    }
    row_reduce<Sum, T, kBlock>(scratch, turn, t1.total);
    if (live && thread == 0 && loss_ptr) loss_ptr[row] = t1.total;
  }
}

} // namespace avo

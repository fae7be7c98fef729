// Generated, do not edit. avo::mean_of_losses_forward: row kernel
// the mean of x over the elements of the last dim whose target is not ignore_index
// Source: torch.nn.functional.cross_entropy with reduction='mean', of the losses without a reduction
#include "device/avo.cuh"
#include "device/integers.cuh"

#define AVO_FUNCTION mean_of_losses_forward
#define AVO_ARGUMENTS target_ptr, target_stride, x_ptr, x_stride, mean_ptr, count_ptr, ignore_index, M, N
#define AVO_PARAMETERS(X, ...) \
  const int64_t* __restrict__ target_ptr, int64_t target_stride, const X* __restrict__ x_ptr, int64_t x_stride, \
  compute_t<X>* __restrict__ mean_ptr, compute_t<X>* __restrict__ count_ptr, compute_t<X> ignore_index, \
  int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead, int kParts = 1>
AVO_INLINE void mean_of_losses_forward(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const RowTile<T, P, V, kN> tile(thread, 0, N);
  __shared__ RowScratch<C, kBlock, T, 2, kParts> scratch;
  int turn = 0;
  announce_row<T, kBlock>();
  const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
  const auto fetch = [&](int64_t row, Vec<int64_t, V> (&target_to)[P], Vec<X, V> (&x_to)[P]) {
    if (row < M) {
      tile.load(target_to, target_ptr + row * target_stride);
      tile.load(x_to, x_ptr + row * x_stride);
    } else {
      clear(target_to, x_to);
    }
  };
  Vec<int64_t, V> target_next[P];
  Vec<X, V> x_next[P];
  if constexpr (kAhead) fetch(rows.first + rows.own, target_next, x_next);
  for (int64_t base = rows.first; base < M; base += rows.step) {
    const int64_t row = base + rows.own;
    const bool live = row < M;
    Vec<int64_t, V> target_vec[P];
    Vec<X, V> x_vec[P];
    if constexpr (kAhead) {
      copy(target_vec, target_next);
      copy(x_vec, x_next);
      fetch(row + rows.step, target_next, x_next);
    } else {
      fetch(row, target_vec, x_vec);
    }
    if (base == rows.first) await_row<T, kBlock>();
    RowSum<C, V> t1;
    RowSum<C, V> t2;
    tile.each([&](int p, int j, bool whole) {
      const auto counts = m_ne(ignore_index, m_to_math<C>(target_vec[p].whole(j)));
      t1.add(m_where(counts, x_vec[p][j], C(0.0)), j, whole);
      t2.add(m_where(counts, C(1.0), C(0.0)), j, whole);
    });
    row_reduce<Sum, T, kBlock>(scratch, turn, t1.total, t2.total);
    const C t3 = t1.total / t2.total;
    if (live && thread == 0 && mean_ptr) mean_ptr[row] = t3;
    if (live && thread == 0 && count_ptr) count_ptr[row] = t2.total;
  }
}

} // namespace avo

// Generated, do not edit. avo::mean_of_losses_forward_loop: loop kernel; formula: mean_of_losses_forward.cu
#include "device/avo.cuh"
#include "device/integers.cuh"

#define AVO_FUNCTION mean_of_losses_forward_loop
#define AVO_ARGUMENTS target_ptr, target_stride, x_ptr, x_stride, mean_ptr, count_ptr, ignore_index, M, N
#define AVO_PARAMETERS(X, ...) \
  const int64_t* __restrict__ target_ptr, int64_t target_stride, const X* __restrict__ x_ptr, int64_t x_stride, \
  compute_t<X>* __restrict__ mean_ptr, compute_t<X>* __restrict__ count_ptr, compute_t<X> ignore_index, \
  int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void mean_of_losses_forward_loop(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  constexpr int V = kVector<X>;
  const int thread = thread_of_row<T, kBlock>();
  __shared__ RowScratch<C, kBlock, T, 2> scratch;
  int turn = 0;
  const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
  for (int64_t base = rows.first; base < M; base += rows.step) {
    const int64_t row = base + rows.own;
    const bool live = row < M;
    RowSum<C, V> t1;
    RowSum<C, V> t2;
    for (int64_t column = 0; column < N; column += T * P * V) {
      const RowTile<T, P, V, kN, int64_t> tile(thread, column, N);
      Vec<int64_t, V> target_vec[P];
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
        const auto counts = m_ne(ignore_index, m_to_math<C>(target_vec[p].whole(j)));
        t1.add(m_where(counts, x_vec[p][j], C(0.0)), j, whole);
        t2.add(m_where(counts, C(1.0), C(0.0)), j, whole);
      });
    }
    row_reduce<Sum, T, kBlock>(scratch, turn, t1.total, t2.total);
    const C t3 = t1.total / t2.total;
    if (live && thread == 0 && mean_ptr) mean_ptr[row] = t3;
    if (live && thread == 0 && count_ptr) count_ptr[row] = t2.total;
  }
}

} // namespace avo

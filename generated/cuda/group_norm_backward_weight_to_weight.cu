// Generated, do not edit. avo::group_norm_backward_weight_to_weight: runs kernel; formula: group_norm_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION group_norm_backward_weight_to_weight
#define AVO_ARGUMENTS x_ptr, x_stride, grad_ptr, grad_stride, rstd_ptr, mean_ptr, residue_ptr, partials, runs, channels, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ x_ptr, int64_t x_stride, const X* __restrict__ grad_ptr, int64_t grad_stride, \
  const compute_t<X>* __restrict__ rstd_ptr, const compute_t<X>* __restrict__ mean_ptr, \
  const compute_t<X>* __restrict__ residue_ptr, compute_t<X>* __restrict__ partials, int64_t runs, \
  int64_t channels, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void group_norm_backward_weight_to_weight(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  constexpr int V = kVector<X>;
  const int thread = thread_of_row<T, kBlock>();
  __shared__ RowScratch<C, kBlock, T, 1> scratch;
  int turn = 0;
  let_next_kernel_begin();
  const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
  for (int64_t base = rows.first; base < M; base += rows.step) {
    const int64_t row = base + rows.own;
    const bool live = row < M;
    const C rstd = live ? rstd_ptr[row / runs] : C(0);
    const C mean = live ? mean_ptr[row / runs] : C(0);
    const C residue = live ? residue_ptr[row / runs] : C(0);
    RowSum<C, V> t1;
    for (int64_t column = 0; column < N; column += T * P * V) {
      const RowTile<T, P, V, kN, int64_t> tile(thread, column, N);
      Vec<X, V> x_vec[P];
      if (live)
        tile.load(x_vec, x_ptr + row / runs * x_stride + row % runs * N);
      else
        clear(x_vec);
      Vec<X, V> grad_vec[P];
      if (live)
        tile.load(grad_vec, grad_ptr + row / runs * grad_stride + row % runs * N);
      else
        clear(grad_vec);
      tile.each([&](int p, int j, bool whole) {
        const C centred = x_vec[p][j] - mean;
        const C y = rstd * (centred - residue);
        t1.add_product(y, grad_vec[p][j], j, whole);
      });
    }
    row_reduce<Sum, T, kBlock>(scratch, turn, t1.total);
    if (live && thread == 0) partials[row / channels * channels + row % channels] = t1.total;
  }
}

} // namespace avo

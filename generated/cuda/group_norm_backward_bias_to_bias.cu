// Generated, do not edit. avo::group_norm_backward_bias_to_bias: runs kernel; formula: group_norm_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION group_norm_backward_bias_to_bias
#define AVO_ARGUMENTS grad_ptr, grad_stride, partials, runs, channels, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ grad_ptr, int64_t grad_stride, compute_t<X>* __restrict__ partials, int64_t runs, \
  int64_t channels, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void group_norm_backward_bias_to_bias(AVO_PARAMETERS(X, T)) {
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
    RowSum<C, V> sum_grad;
    for (int64_t column = 0; column < N; column += T * P * V) {
      const RowTile<T, P, V, kN, int64_t> tile(thread, column, N);
      Vec<X, V> grad_vec[P];
      if (live)
        tile.load(grad_vec, grad_ptr + row / runs * grad_stride + row % runs * N);
      else
        clear(grad_vec);
      tile.each([&](int p, int j, bool whole) {
        sum_grad.add(grad_vec[p][j], j, whole);
      });
    }
    row_reduce<Sum, T, kBlock>(scratch, turn, sum_grad.total);
    if (live && thread == 0) partials[row / channels * channels + row % channels] = sum_grad.total;
  }
}

} // namespace avo

// Generated, do not edit. avo::softmax_with_sink_backward_loop: loop kernel; formula: softmax_with_sink_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION softmax_with_sink_backward_loop
#define AVO_ARGUMENTS y_ptr, y_stride, grad_ptr, grad_stride, own_ptr, statistic1_ptr, grad_x_ptr, grad_x_stride, grad_sink_ptr, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ y_ptr, int64_t y_stride, const X* __restrict__ grad_ptr, int64_t grad_stride, \
  const compute_t<X>* __restrict__ own_ptr, const compute_t<X>* __restrict__ statistic1_ptr, \
  X* __restrict__ grad_x_ptr, int64_t grad_x_stride, compute_t<X>* __restrict__ grad_sink_ptr, int64_t M, \
  int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void softmax_with_sink_backward_loop(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  constexpr int V = kVector<X>;
  const int thread = thread_of_row<T, kBlock>();
  __shared__ RowScratch<C, kBlock, T, 1> scratch;
  int turn = 0;
  const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
  for (int64_t base = rows.first; base < M; base += rows.step) {
    const int64_t row = base + rows.own;
    const bool live = row < M;
    const C own_ = live ? own_ptr[row] : C(0);
    const C statistic1 = live ? statistic1_ptr[row] : C(0);
    const C share = own_ / statistic1;
    const C t1 = -share;
    RowSum<C, V> along_y;
    for (int64_t column = 0; column < N; column += T * P * V) {
      const RowTile<T, P, V, kN, int64_t> tile(thread, column, N);
      Vec<X, V> y_vec[P];
      if (live)
        tile.load(y_vec, y_ptr + row * y_stride);
      else
        clear(y_vec);
      Vec<X, V> grad_vec[P];
      if (live)
        tile.load(grad_vec, grad_ptr + row * grad_stride);
      else
        clear(grad_vec);
      tile.each([&](int p, int j, bool whole) {
        along_y.add_product(y_vec[p][j], grad_vec[p][j], j, whole);
      });
    }
    row_reduce<Sum, T, kBlock>(scratch, turn, along_y.total);
    const C t2 = t1 * along_y.total;
    if (live && thread == 0 && grad_sink_ptr) grad_sink_ptr[row] = t2;
    for (int64_t column = 0; column < N; column += T * P * V) {
      const RowTile<T, P, V, kN, int64_t> tile(thread, column, N);
      Vec<X, V> y_vec[P];
      if (live)
        tile.load(y_vec, y_ptr + row * y_stride);
      else
        clear(y_vec);
      Vec<X, V> grad_vec[P];
      if (live)
        tile.load(grad_vec, grad_ptr + row * grad_stride);
      else
        clear(grad_vec);
#pragma unroll
      for (int p = 0; p < P; ++p) {
        C grad_x_out[V];
#pragma unroll
        for (int j = 0; j < V; ++j) {
          grad_x_out[j] = y_vec[p][j] * (grad_vec[p][j] - along_y.total);
        }
        tile.store(grad_x_ptr + row * grad_x_stride, p, grad_x_out, live);
      }
    }
  }
}

} // namespace avo

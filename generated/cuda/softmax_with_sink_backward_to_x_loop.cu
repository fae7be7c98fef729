// Generated, do not edit. avo::softmax_with_sink_backward_to_x_loop: loop kernel; formula: softmax_with_sink_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION softmax_with_sink_backward_to_x_loop
#define AVO_ARGUMENTS y_ptr, y_stride, grad_ptr, grad_stride, grad_x_ptr, grad_x_stride, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ y_ptr, int64_t y_stride, const X* __restrict__ grad_ptr, int64_t grad_stride, \
  X* __restrict__ grad_x_ptr, int64_t grad_x_stride, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void softmax_with_sink_backward_to_x_loop(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  constexpr int V = kVector<X>;
  const int thread = thread_of_row<T, kBlock>();
  __shared__ RowScratch<C, kBlock, T, 1> scratch;
  int turn = 0;
  const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
  for (int64_t base = rows.first; base < M; base += rows.step) {
    const int64_t row = base + rows.own;
    const bool live = row < M;
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

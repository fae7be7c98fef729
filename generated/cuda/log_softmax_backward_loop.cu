// Generated, do not edit. avo::log_softmax_backward_loop: loop kernel; formula: log_softmax_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION log_softmax_backward_loop
#define AVO_ARGUMENTS y_ptr, y_stride, grad_ptr, grad_stride, grad_x_ptr, grad_x_stride, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ y_ptr, int64_t y_stride, const X* __restrict__ grad_ptr, int64_t grad_stride, \
  X* __restrict__ grad_x_ptr, int64_t grad_x_stride, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void log_softmax_backward_loop(AVO_PARAMETERS(X, T)) {
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
    RowSum<C, V> sum_grad;
    for (int64_t column = 0; column < N; column += T * P * V) {
      const RowTile<T, P, V, kN, int64_t> tile(thread, column, N);
      Vec<X, V> grad_vec[P];
      if (live)
        tile.load(grad_vec, grad_ptr + row * grad_stride);
      else
        clear(grad_vec);
      tile.each([&](int p, int j, bool whole) {
        sum_grad.add(grad_vec[p][j], j, whole);
      });
    }
    row_reduce<Sum, T, kBlock>(scratch, turn, sum_grad.total);
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
          grad_x_out[j] = m_fma(-m_exp<A>(y_vec[p][j]), sum_grad.total, grad_vec[p][j]);
        }
        tile.store(grad_x_ptr + row * grad_x_stride, p, grad_x_out, live);
      }
    }
  }
}

} // namespace avo

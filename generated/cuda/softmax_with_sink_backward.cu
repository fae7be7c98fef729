// Generated, do not edit. avo::softmax_with_sink_backward: row kernel; formula: softmax_with_sink_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION softmax_with_sink_backward
#define AVO_ARGUMENTS y_ptr, y_stride, grad_ptr, grad_stride, own_ptr, statistic1_ptr, grad_x_ptr, grad_x_stride, grad_sink_ptr, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ y_ptr, int64_t y_stride, const X* __restrict__ grad_ptr, int64_t grad_stride, \
  const compute_t<X>* __restrict__ own_ptr, const compute_t<X>* __restrict__ statistic1_ptr, \
  X* __restrict__ grad_x_ptr, int64_t grad_x_stride, compute_t<X>* __restrict__ grad_sink_ptr, int64_t M, \
  int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead, int kParts = 1>
AVO_INLINE void softmax_with_sink_backward(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const RowTile<T, P, V, kN> tile(thread, 0, N);
  __shared__ RowScratch<C, kBlock, T, 1, kParts> scratch;
  int turn = 0;
  announce_row<T, kBlock>();
  const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
  const auto fetch = [&](int64_t row, Vec<X, V> (&y_to)[P], Vec<X, V> (&grad_to)[P], C& own_to, C& statistic1_to) {
    if (row < M) {
      tile.load(y_to, y_ptr + row * y_stride);
      tile.load(grad_to, grad_ptr + row * grad_stride);
      own_to = own_ptr[row];
      statistic1_to = statistic1_ptr[row];
    } else {
      clear(y_to, grad_to);
      own_to = C(0);
      statistic1_to = C(0);
    }
  };
  Vec<X, V> y_next[P], grad_next[P];
  C own_next, statistic1_next;
  if constexpr (kAhead) fetch(rows.first + rows.own, y_next, grad_next, own_next, statistic1_next);
  for (int64_t base = rows.first; base < M; base += rows.step) {
    const int64_t row = base + rows.own;
    const bool live = row < M;
    Vec<X, V> y_vec[P], grad_vec[P];
    C own_, statistic1;
    if constexpr (kAhead) {
      copy(y_vec, y_next);
      copy(grad_vec, grad_next);
      own_ = own_next;
      statistic1 = statistic1_next;
      fetch(row + rows.step, y_next, grad_next, own_next, statistic1_next);
    } else {
      fetch(row, y_vec, grad_vec, own_, statistic1);
    }
    if (base == rows.first) await_row<T, kBlock>();
    const C share = own_ / statistic1;
    const C t1 = -share;
    RowSum<C, V> along_y;
    tile.each([&](int p, int j, bool whole) {
      along_y.add_product(y_vec[p][j], grad_vec[p][j], j, whole);
    });
    row_reduce<Sum, T, kBlock>(scratch, turn, along_y.total);
    const C t2 = t1 * along_y.total;
    if (live && thread == 0 && grad_sink_ptr) grad_sink_ptr[row] = t2;
#pragma unroll
    for (int p = 0; p < P; ++p) {
      if (!tile.reaches(p)) continue;
      C grad_x_out[V];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        grad_x_out[j] = y_vec[p][j] * (grad_vec[p][j] - along_y.total);
      }
      tile.store(grad_x_ptr + row * grad_x_stride, p, grad_x_out, live);
    }
  }
}

} // namespace avo

// Generated, do not edit. avo::l2_normalize_backward: row kernel; formula: l2_normalize_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION l2_normalize_backward
#define AVO_ARGUMENTS y_ptr, y_stride, grad_ptr, grad_stride, scale_ptr, norm_ptr, grad_x_ptr, grad_x_stride, eps, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ y_ptr, int64_t y_stride, const X* __restrict__ grad_ptr, int64_t grad_stride, \
  const compute_t<X>* __restrict__ scale_ptr, const compute_t<X>* __restrict__ norm_ptr, \
  X* __restrict__ grad_x_ptr, int64_t grad_x_stride, compute_t<X> eps, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead, int kParts = 1>
AVO_INLINE void l2_normalize_backward(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const RowTile<T, P, V, kN> tile(thread, 0, N);
  __shared__ RowScratch<C, kBlock, T, 1, kParts> scratch;
  int turn = 0;
  announce_row<T, kBlock>();
  const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
  const auto fetch = [&](int64_t row, Vec<X, V> (&y_to)[P], Vec<X, V> (&grad_to)[P], C& scale_to, C& norm_to) {
    if (row < M) {
      tile.load(y_to, y_ptr + row * y_stride);
      tile.load(grad_to, grad_ptr + row * grad_stride);
      scale_to = scale_ptr[row];
      norm_to = norm_ptr[row];
    } else {
      clear(y_to, grad_to);
      scale_to = C(0);
      norm_to = C(0);
    }
  };
  Vec<X, V> y_next[P], grad_next[P];
  C scale_next, norm_next;
  if constexpr (kAhead) fetch(rows.first + rows.own, y_next, grad_next, scale_next, norm_next);
  for (int64_t base = rows.first; base < M; base += rows.step) {
    const int64_t row = base + rows.own;
    const bool live = row < M;
    Vec<X, V> y_vec[P], grad_vec[P];
    C scale, norm;
    if constexpr (kAhead) {
      copy(y_vec, y_next);
      copy(grad_vec, grad_next);
      scale = scale_next;
      norm = norm_next;
      fetch(row + rows.step, y_next, grad_next, scale_next, norm_next);
    } else {
      fetch(row, y_vec, grad_vec, scale, norm);
    }
    if (base == rows.first) await_row<T, kBlock>();
    const auto t1 = m_gt(norm, eps);
    RowSum<C, V> t2;
    tile.each([&](int p, int j, bool whole) {
      t2.add_product(y_vec[p][j], grad_vec[p][j], j, whole);
    });
    row_reduce<Sum, T, kBlock>(scratch, turn, t2.total);
    const C along_y = m_where(t1, t2.total, C(0.0));
#pragma unroll
    for (int p = 0; p < P; ++p) {
      if (!tile.reaches(p)) continue;
      C grad_x_out[V];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        grad_x_out[j] = scale * m_fma(-y_vec[p][j], along_y, grad_vec[p][j]);
      }
      tile.store(grad_x_ptr + row * grad_x_stride, p, grad_x_out, live);
    }
  }
}

} // namespace avo

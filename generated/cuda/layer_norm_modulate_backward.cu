// Generated, do not edit. avo::layer_norm_modulate_backward: row kernel; formula: layer_norm_modulate_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION layer_norm_modulate_backward
#define AVO_ARGUMENTS scale_ptr, scale_stride, grad_ptr, grad_stride, x_ptr, x_stride, rstd_ptr, mean_ptr, residue_ptr, grad_x_ptr, grad_x_stride, grad_scale_ptr, grad_scale_stride, grad_shift_ptr, grad_shift_stride, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ scale_ptr, int64_t scale_stride, const X* __restrict__ grad_ptr, int64_t grad_stride, \
  const X* __restrict__ x_ptr, int64_t x_stride, const compute_t<X>* __restrict__ rstd_ptr, \
  const compute_t<X>* __restrict__ mean_ptr, const compute_t<X>* __restrict__ residue_ptr, \
  X* __restrict__ grad_x_ptr, int64_t grad_x_stride, X* __restrict__ grad_scale_ptr, int64_t grad_scale_stride, \
  X* __restrict__ grad_shift_ptr, int64_t grad_shift_stride, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead, int kParts = 1>
AVO_INLINE void layer_norm_modulate_backward(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const RowTile<T, P, V, kN> tile(thread, 0, N);
  __shared__ RowScratch<C, kBlock, T, 2, kParts> scratch;
  int turn = 0;
  announce_row<T, kBlock>();
  const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
  const auto fetch = [&](int64_t row, Vec<X, V> (&scale_to)[P], Vec<X, V> (&grad_to)[P], Vec<X, V> (&x_to)[P], C& rstd_to, C& mean_to, C& residue_to) {
    if (row < M) {
      tile.load(scale_to, scale_ptr + row * scale_stride);
      tile.load(grad_to, grad_ptr + row * grad_stride);
      tile.load(x_to, x_ptr + row * x_stride);
      rstd_to = rstd_ptr[row];
      mean_to = mean_ptr[row];
      residue_to = residue_ptr[row];
    } else {
      clear(scale_to, grad_to, x_to);
      rstd_to = C(0);
      mean_to = C(0);
      residue_to = C(0);
    }
  };
  Vec<X, V> scale_next[P], grad_next[P], x_next[P];
  C rstd_next, mean_next, residue_next;
  if constexpr (kAhead) fetch(rows.first + rows.own, scale_next, grad_next, x_next, rstd_next, mean_next, residue_next);
  for (int64_t base = rows.first; base < M; base += rows.step) {
    const int64_t row = base + rows.own;
    const bool live = row < M;
    Vec<X, V> scale_vec[P], grad_vec[P], x_vec[P];
    C rstd, mean, residue;
    if constexpr (kAhead) {
      copy(scale_vec, scale_next);
      copy(grad_vec, grad_next);
      copy(x_vec, x_next);
      rstd = rstd_next;
      mean = mean_next;
      residue = residue_next;
      fetch(row + rows.step, scale_next, grad_next, x_next, rstd_next, mean_next, residue_next);
    } else {
      fetch(row, scale_vec, grad_vec, x_vec, rstd, mean, residue);
    }
    if (base == rows.first) await_row<T, kBlock>();
    RowSum<C, V> t1;
    RowSum<C, V> t2;
    tile.each([&](int p, int j, bool whole) {
      const C t3 = scale_vec[p][j] + C(1.0);
      const C centred = x_vec[p][j] - mean;
      const C y = rstd * (centred - residue);
      t1.add_product(t3, grad_vec[p][j], j, whole);
      t2.add_product(y, t3 * grad_vec[p][j], j, whole);
    });
    row_reduce<Sum, T, kBlock>(scratch, turn, t1.total, t2.total);
    const C t3 = -(rstd * t1.total) / C(N);
    const C t4 = rstd * (-t2.total / C(N));
#pragma unroll
    for (int p = 0; p < P; ++p) {
      if (!tile.reaches(p)) continue;
      C grad_x_out[V];
      C grad_scale_out[V];
      C grad_shift_out[V];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const C centred = x_vec[p][j] - mean;
        const C y = rstd * (centred - residue);
        grad_x_out[j] = t3 + m_fma(t4, rstd * centred, rstd * ((scale_vec[p][j] + C(1.0)) * grad_vec[p][j]));
        grad_scale_out[j] = y * grad_vec[p][j];
        grad_shift_out[j] = grad_vec[p][j];
      }
      tile.store(grad_x_ptr + row * grad_x_stride, p, grad_x_out, live);
      tile.store(grad_scale_ptr + row * grad_scale_stride, p, grad_scale_out, live);
      tile.store(grad_shift_ptr + row * grad_shift_stride, p, grad_shift_out, live);
    }
  }
}

} // namespace avo

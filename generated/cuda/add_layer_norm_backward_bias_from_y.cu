// Generated, do not edit. avo::add_layer_norm_backward_bias_from_y: row kernel; formula: add_layer_norm_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION add_layer_norm_backward_bias_from_y
#define AVO_ARGUMENTS grad_y_ptr, grad_y_stride, residual_out_ptr, residual_out_stride, rstd_ptr, mean_ptr, residue_ptr, grad_x_ptr, grad_x_stride, partials, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ grad_y_ptr, int64_t grad_y_stride, const X* __restrict__ residual_out_ptr, \
  int64_t residual_out_stride, const compute_t<X>* __restrict__ rstd_ptr, \
  const compute_t<X>* __restrict__ mean_ptr, const compute_t<X>* __restrict__ residue_ptr, \
  X* __restrict__ grad_x_ptr, int64_t grad_x_stride, compute_t<X>* __restrict__ partials, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void add_layer_norm_backward_bias_from_y(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const RowTile<T, P, V, kN> tile(thread, 0, N);
  __shared__ RowScratch<C, kBlock, T, 2> scratch;
  int turn = 0;
  let_next_kernel_begin();
  C sum_grad_bias[P][V] = {};
  announce_row<T, kBlock>();
  const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
  const auto fetch = [&](int64_t row, Vec<X, V> (&grad_y_to)[P], Vec<X, V> (&residual_out_to)[P], C& rstd_to, C& mean_to, C& residue_to) {
    if (row < M) {
      tile.load(grad_y_to, grad_y_ptr + row * grad_y_stride);
      tile.load(residual_out_to, residual_out_ptr + row * residual_out_stride);
      rstd_to = rstd_ptr[row];
      mean_to = mean_ptr[row];
      residue_to = residue_ptr[row];
    } else {
      clear(grad_y_to, residual_out_to);
      rstd_to = C(0);
      mean_to = C(0);
      residue_to = C(0);
    }
  };
  Vec<X, V> grad_y_next[P], residual_out_next[P];
  C rstd_next, mean_next, residue_next;
  if constexpr (kAhead) fetch(rows.first + rows.own, grad_y_next, residual_out_next, rstd_next, mean_next, residue_next);
  for (int64_t base = rows.first; base < M; base += rows.step) {
    const int64_t row = base + rows.own;
    const bool live = row < M;
    Vec<X, V> grad_y_vec[P], residual_out_vec[P];
    C rstd, mean, residue;
    if constexpr (kAhead) {
      copy(grad_y_vec, grad_y_next);
      copy(residual_out_vec, residual_out_next);
      rstd = rstd_next;
      mean = mean_next;
      residue = residue_next;
      fetch(row + rows.step, grad_y_next, residual_out_next, rstd_next, mean_next, residue_next);
    } else {
      fetch(row, grad_y_vec, residual_out_vec, rstd, mean, residue);
    }
    if (base == rows.first) await_row<T, kBlock>();
    RowSum<C, V> sum_grad_y;
    RowSum<C, V> t1;
    tile.each([&](int p, int j, bool whole) {
      const C centred = residual_out_vec[p][j] - mean;
      sum_grad_y.add(grad_y_vec[p][j], j, whole);
      t1.add_product(grad_y_vec[p][j], rstd * (centred - residue), j, whole);
    });
    row_reduce<Sum, T, kBlock>(scratch, turn, sum_grad_y.total, t1.total);
    const C t2 = -(sum_grad_y.total * rstd) / C(N);
    const C t3 = rstd * (-t1.total / C(N));
#pragma unroll
    for (int p = 0; p < P; ++p) {
      if (!tile.reaches(p)) continue;
      C grad_x_out[V];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const C centred = residual_out_vec[p][j] - mean;
        grad_x_out[j] = t2 + m_fma(t3, rstd * centred, grad_y_vec[p][j] * rstd);
        if (live) sum_grad_bias[p][j] += grad_y_vec[p][j];
      }
      tile.store(grad_x_ptr + row * grad_x_stride, p, grad_x_out, live);
    }
  }
  __shared__ C shared[rows.kRows > 1 ? T * P * V : 1];
  write_partial<rows.kRows>(tile, sum_grad_bias, shared, partials + rows.block * N);
}

} // namespace avo

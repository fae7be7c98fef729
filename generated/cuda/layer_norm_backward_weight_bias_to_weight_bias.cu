// Generated, do not edit. avo::layer_norm_backward_weight_bias_to_weight_bias: column kernel; formula: layer_norm_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION layer_norm_backward_weight_bias_to_weight_bias
#define AVO_ARGUMENTS x_ptr, x_stride, grad_ptr, grad_stride, rstd_ptr, mean_ptr, residue_ptr, partials, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ x_ptr, int64_t x_stride, const X* __restrict__ grad_ptr, int64_t grad_stride, \
  const compute_t<X>* __restrict__ rstd_ptr, const compute_t<X>* __restrict__ mean_ptr, \
  const compute_t<X>* __restrict__ residue_ptr, compute_t<X>* __restrict__ partials, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void layer_norm_backward_weight_bias_to_weight_bias(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const int column = int(blockIdx.x) * (T * P * V);
  const bool whole = int64_t(column) + T * P * V <= N && starts_at_chunk<V>(x_ptr, x_stride) && starts_at_chunk<V>(grad_ptr, grad_stride);
  const auto body = [&](const auto& tile) {
    let_next_kernel_begin();
    C sum_grad_weight[P][V] = {};
    C sum_grad_bias[P][V] = {};
    const BlockRows<T, kBlock> rows(blockIdx.y, gridDim.y);
    const auto fetch = [&](int64_t row, Vec<X, V> (&x_to)[P], Vec<X, V> (&grad_to)[P], C& rstd_to, C& mean_to, C& residue_to) {
      if (row < M) {
        tile.load(x_to, x_ptr + row * x_stride);
        tile.load(grad_to, grad_ptr + row * grad_stride);
        rstd_to = rstd_ptr[row];
        mean_to = mean_ptr[row];
        residue_to = residue_ptr[row];
      } else {
        clear(x_to, grad_to);
        rstd_to = C(0);
        mean_to = C(0);
        residue_to = C(0);
      }
    };
    Vec<X, V> x_next[P], grad_next[P];
    C rstd_next, mean_next, residue_next;
    if constexpr (kAhead) fetch(rows.first + rows.own, x_next, grad_next, rstd_next, mean_next, residue_next);
    for (int64_t base = rows.first; base < M; base += rows.step) {
      const int64_t row = base + rows.own;
      const bool live = row < M;
      Vec<X, V> x_vec[P], grad_vec[P];
      C rstd, mean, residue;
      if constexpr (kAhead) {
        copy(x_vec, x_next);
        copy(grad_vec, grad_next);
        rstd = rstd_next;
        mean = mean_next;
        residue = residue_next;
        fetch(row + rows.step, x_next, grad_next, rstd_next, mean_next, residue_next);
      } else {
        fetch(row, x_vec, grad_vec, rstd, mean, residue);
      }
#pragma unroll
      for (int p = 0; p < P; ++p) {
        if (!tile.reaches(p)) continue;
#pragma unroll
        for (int j = 0; j < V; ++j) {
          const C centred = x_vec[p][j] - mean;
          const C y = rstd * (centred - residue);
          if (live) sum_grad_weight[p][j] += y * grad_vec[p][j];
          if (live) sum_grad_bias[p][j] += grad_vec[p][j];
        }
      }
    }
    __shared__ C shared[rows.kRows > 1 ? T * P * V : 1];
    write_partial<rows.kRows>(tile, sum_grad_weight, shared, partials + (rows.block * 2 + 0) * N);
    write_partial<rows.kRows>(tile, sum_grad_bias, shared, partials + (rows.block * 2 + 1) * N);
  };
  if (whole)
    body(WholeTile<T, P, V>(thread, column, N));
  else
    body(RowTile<T, P, V, kN>(thread, column, N));
}

} // namespace avo

// Generated, do not edit. avo::rms_norm_rotary_halves_backward_to_weight: column kernel; formula: rms_norm_rotary_halves_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION rms_norm_rotary_halves_backward_to_weight
#define AVO_ARGUMENTS first_ptr, first_stride, cos_ptr, cos_stride, grad_turned_first_ptr, grad_turned_first_stride, sin_ptr, sin_stride, grad_turned_second_ptr, grad_turned_second_stride, second_ptr, second_stride, rstd_ptr, partials, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ first_ptr, int64_t first_stride, const X* __restrict__ cos_ptr, int64_t cos_stride, \
  const X* __restrict__ grad_turned_first_ptr, int64_t grad_turned_first_stride, const X* __restrict__ sin_ptr, \
  int64_t sin_stride, const X* __restrict__ grad_turned_second_ptr, int64_t grad_turned_second_stride, \
  const X* __restrict__ second_ptr, int64_t second_stride, const compute_t<X>* __restrict__ rstd_ptr, \
  compute_t<X>* __restrict__ partials, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void rms_norm_rotary_halves_backward_to_weight(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const int column = int(blockIdx.x) * (T * P * V);
  const bool whole = int64_t(column) + T * P * V <= N && starts_at_chunk<V>(first_ptr, first_stride) && starts_at_chunk<V>(cos_ptr, cos_stride) && starts_at_chunk<V>(grad_turned_first_ptr, grad_turned_first_stride) && starts_at_chunk<V>(sin_ptr, sin_stride) && starts_at_chunk<V>(grad_turned_second_ptr, grad_turned_second_stride) && starts_at_chunk<V>(second_ptr, second_stride);
  const auto body = [&](const auto& tile) {
    let_next_kernel_begin();
    C sum_grad_first_weight[P][V] = {};
    C sum_grad_second_weight[P][V] = {};
    const BlockRows<T, kBlock> rows(blockIdx.y, gridDim.y);
    const auto fetch = [&](int64_t row, Vec<X, V> (&first_to)[P], Vec<X, V> (&cos_to)[P], Vec<X, V> (&grad_turned_first_to)[P], Vec<X, V> (&sin_to)[P], Vec<X, V> (&grad_turned_second_to)[P], Vec<X, V> (&second_to)[P], C& rstd_to) {
      if (row < M) {
        tile.load(first_to, first_ptr + row * first_stride);
        tile.load(cos_to, cos_ptr + row * cos_stride);
        tile.load(grad_turned_first_to, grad_turned_first_ptr + row * grad_turned_first_stride);
        tile.load(sin_to, sin_ptr + row * sin_stride);
        tile.load(grad_turned_second_to, grad_turned_second_ptr + row * grad_turned_second_stride);
        tile.load(second_to, second_ptr + row * second_stride);
        rstd_to = rstd_ptr[row];
      } else {
        clear(first_to, cos_to, grad_turned_first_to, sin_to, grad_turned_second_to, second_to);
        rstd_to = C(0);
      }
    };
    Vec<X, V> first_next[P], cos_next[P], grad_turned_first_next[P], sin_next[P], grad_turned_second_next[P], second_next[P];
    C rstd_next;
    if constexpr (kAhead) fetch(rows.first + rows.own, first_next, cos_next, grad_turned_first_next, sin_next, grad_turned_second_next, second_next, rstd_next);
    for (int64_t base = rows.first; base < M; base += rows.step) {
      const int64_t row = base + rows.own;
      const bool live = row < M;
      Vec<X, V> first_vec[P], cos_vec[P], grad_turned_first_vec[P], sin_vec[P], grad_turned_second_vec[P], second_vec[P];
      C rstd;
      if constexpr (kAhead) {
        copy(first_vec, first_next);
        copy(cos_vec, cos_next);
        copy(grad_turned_first_vec, grad_turned_first_next);
        copy(sin_vec, sin_next);
        copy(grad_turned_second_vec, grad_turned_second_next);
        copy(second_vec, second_next);
        rstd = rstd_next;
        fetch(row + rows.step, first_next, cos_next, grad_turned_first_next, sin_next, grad_turned_second_next, second_next, rstd_next);
      } else {
        fetch(row, first_vec, cos_vec, grad_turned_first_vec, sin_vec, grad_turned_second_vec, second_vec, rstd);
      }
#pragma unroll
      for (int p = 0; p < P; ++p) {
        if (!tile.reaches(p)) continue;
#pragma unroll
        for (int j = 0; j < V; ++j) {
          if (live) sum_grad_first_weight[p][j] = m_fma(first_vec[p][j] * rstd, m_fma(cos_vec[p][j], grad_turned_first_vec[p][j], sin_vec[p][j] * grad_turned_second_vec[p][j]), sum_grad_first_weight[p][j]);
          if (live) sum_grad_second_weight[p][j] = m_fma(second_vec[p][j] * rstd, m_fma(sin_vec[p][j], -grad_turned_first_vec[p][j], cos_vec[p][j] * grad_turned_second_vec[p][j]), sum_grad_second_weight[p][j]);
        }
      }
    }
    __shared__ C shared[rows.kRows > 1 ? T * P * V : 1];
    write_partial<rows.kRows>(tile, sum_grad_first_weight, shared, partials + (rows.block * 2 + 0) * N);
    write_partial<rows.kRows>(tile, sum_grad_second_weight, shared, partials + (rows.block * 2 + 1) * N);
  };
  if (whole)
    body(WholeTile<T, P, V>(thread, column, N));
  else
    body(RowTile<T, P, V, kN>(thread, column, N));
}

} // namespace avo

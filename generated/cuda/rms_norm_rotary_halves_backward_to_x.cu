// Generated, do not edit. avo::rms_norm_rotary_halves_backward_to_x: row kernel; formula: rms_norm_rotary_halves_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION rms_norm_rotary_halves_backward_to_x
#define AVO_ARGUMENTS first_ptr, first_stride, second_ptr, second_stride, sin_ptr, sin_stride, grad_turned_first_ptr, grad_turned_first_stride, cos_ptr, cos_stride, grad_turned_second_ptr, grad_turned_second_stride, second_weight_ptr, first_weight_ptr, rstd_ptr, grad_first_ptr, grad_first_stride, grad_second_ptr, grad_second_stride, offset, M, N
#define AVO_PARAMETERS(X, W, ...) \
  const X* __restrict__ first_ptr, int64_t first_stride, const X* __restrict__ second_ptr, \
  int64_t second_stride, const X* __restrict__ sin_ptr, int64_t sin_stride, \
  const X* __restrict__ grad_turned_first_ptr, int64_t grad_turned_first_stride, const X* __restrict__ cos_ptr, \
  int64_t cos_stride, const X* __restrict__ grad_turned_second_ptr, int64_t grad_turned_second_stride, \
  const W* __restrict__ second_weight_ptr, const W* __restrict__ first_weight_ptr, \
  const compute_t<X>* __restrict__ rstd_ptr, X* __restrict__ grad_first_ptr, int64_t grad_first_stride, \
  X* __restrict__ grad_second_ptr, int64_t grad_second_stride, compute_t<X> offset, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, class W, int T, int P, int kN, bool kAhead, int kParts = 1>
AVO_INLINE void rms_norm_rotary_halves_backward_to_x(AVO_PARAMETERS(X, W, T)) {
  using C = compute_t<X>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const RowTile<T, P, V, kN> tile(thread, 0, N);
  __shared__ RowScratch<C, kBlock, T, 2, kParts> scratch;
  int turn = 0;
  Vec<W, V> second_weight_vec[P];
  tile.load_columns(second_weight_vec, second_weight_ptr);
  Vec<W, V> first_weight_vec[P];
  tile.load_columns(first_weight_vec, first_weight_ptr);
  announce_row<T, kBlock>();
  const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
  const auto fetch = [&](int64_t row, Vec<X, V> (&first_to)[P], Vec<X, V> (&second_to)[P], Vec<X, V> (&sin_to)[P], Vec<X, V> (&grad_turned_first_to)[P], Vec<X, V> (&cos_to)[P], Vec<X, V> (&grad_turned_second_to)[P], C& rstd_to) {
    if (row < M) {
      tile.load(first_to, first_ptr + row * first_stride);
      tile.load(second_to, second_ptr + row * second_stride);
      tile.load(sin_to, sin_ptr + row * sin_stride);
      tile.load(grad_turned_first_to, grad_turned_first_ptr + row * grad_turned_first_stride);
      tile.load(cos_to, cos_ptr + row * cos_stride);
      tile.load(grad_turned_second_to, grad_turned_second_ptr + row * grad_turned_second_stride);
      rstd_to = rstd_ptr[row];
    } else {
      clear(first_to, second_to, sin_to, grad_turned_first_to, cos_to, grad_turned_second_to);
      rstd_to = C(0);
    }
  };
  Vec<X, V> first_next[P], second_next[P], sin_next[P], grad_turned_first_next[P], cos_next[P], grad_turned_second_next[P];
  C rstd_next;
  if constexpr (kAhead) fetch(rows.first + rows.own, first_next, second_next, sin_next, grad_turned_first_next, cos_next, grad_turned_second_next, rstd_next);
  for (int64_t base = rows.first; base < M; base += rows.step) {
    const int64_t row = base + rows.own;
    const bool live = row < M;
    Vec<X, V> first_vec[P], second_vec[P], sin_vec[P], grad_turned_first_vec[P], cos_vec[P], grad_turned_second_vec[P];
    C rstd;
    if constexpr (kAhead) {
      copy(first_vec, first_next);
      copy(second_vec, second_next);
      copy(sin_vec, sin_next);
      copy(grad_turned_first_vec, grad_turned_first_next);
      copy(cos_vec, cos_next);
      copy(grad_turned_second_vec, grad_turned_second_next);
      rstd = rstd_next;
      fetch(row + rows.step, first_next, second_next, sin_next, grad_turned_first_next, cos_next, grad_turned_second_next, rstd_next);
    } else {
      fetch(row, first_vec, second_vec, sin_vec, grad_turned_first_vec, cos_vec, grad_turned_second_vec, rstd);
    }
    if (base == rows.first) await_row<T, kBlock>();
    RowSum<C, V> t1;
    RowSum<C, V> t2;
    tile.each([&](int p, int j, bool whole) {
      t1.add_product(second_vec[p][j], (second_weight_vec[p][j] + offset) * m_fma(sin_vec[p][j], -grad_turned_first_vec[p][j], cos_vec[p][j] * grad_turned_second_vec[p][j]), j, whole);
      t2.add_product(first_vec[p][j], (first_weight_vec[p][j] + offset) * m_fma(cos_vec[p][j], grad_turned_first_vec[p][j], sin_vec[p][j] * grad_turned_second_vec[p][j]), j, whole);
    });
    row_reduce<Sum, T, kBlock>(scratch, turn, t1.total, t2.total);
    const C t3 = rstd * (rstd * (C(-0.5) * (t1.total + t2.total) / C(N)));
#pragma unroll
    for (int p = 0; p < P; ++p) {
      if (!tile.reaches(p)) continue;
      C grad_first_out[V];
      C grad_second_out[V];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        grad_first_out[j] = m_fma(first_vec[p][j] * rstd, t3, rstd * ((first_weight_vec[p][j] + offset) * m_fma(cos_vec[p][j], grad_turned_first_vec[p][j], sin_vec[p][j] * grad_turned_second_vec[p][j])));
        grad_second_out[j] = m_fma(second_vec[p][j] * rstd, t3, rstd * ((second_weight_vec[p][j] + offset) * m_fma(sin_vec[p][j], -grad_turned_first_vec[p][j], cos_vec[p][j] * grad_turned_second_vec[p][j])));
      }
      tile.store(grad_first_ptr + row * grad_first_stride, p, grad_first_out, live);
      tile.store(grad_second_ptr + row * grad_second_stride, p, grad_second_out, live);
    }
  }
}

} // namespace avo

// Generated, do not edit. avo::rms_norm_rotary_halves_forward: row kernel
// a cos - b sin, b cos + a sin; a, b = the halves of the last dim of x / sqrt(mean(x^2) + eps) * (weight +
//   offset), and of the result; no gradient for cos and sin; eps=None: the machine epsilon of the dtype of
//   the math
// Source: Yang et al., Qwen3 Technical Report, arXiv:2505.09388 (QK-Norm); Su et al., RoFormer: Enhanced
//   Transformer with Rotary Position Embedding, arXiv:2104.09864
#include "device/avo.cuh"

#define AVO_FUNCTION rms_norm_rotary_halves_forward
#define AVO_ARGUMENTS sin_ptr, sin_stride, second_ptr, second_stride, first_ptr, first_stride, cos_ptr, cos_stride, second_weight_ptr, first_weight_ptr, turned_first_ptr, turned_first_stride, turned_second_ptr, turned_second_stride, rstd_ptr, offset, eps, M, N
#define AVO_PARAMETERS(X, W, ...) \
  const X* __restrict__ sin_ptr, int64_t sin_stride, const X* __restrict__ second_ptr, int64_t second_stride, \
  const X* __restrict__ first_ptr, int64_t first_stride, const X* __restrict__ cos_ptr, int64_t cos_stride, \
  const W* __restrict__ second_weight_ptr, const W* __restrict__ first_weight_ptr, \
  X* __restrict__ turned_first_ptr, int64_t turned_first_stride, X* __restrict__ turned_second_ptr, \
  int64_t turned_second_stride, compute_t<X>* __restrict__ rstd_ptr, compute_t<X> offset, compute_t<X> eps, \
  int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, class W, int T, int P, int kN, bool kAhead, int kParts = 1>
AVO_INLINE void rms_norm_rotary_halves_forward(AVO_PARAMETERS(X, W, T)) {
  using C = compute_t<X>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const RowTile<T, P, V, kN> tile(thread, 0, N);
  __shared__ RowScratch<C, kBlock, T, 1, kParts> scratch;
  int turn = 0;
  Vec<W, V> second_weight_vec[kAhead ? P : 1];
  if constexpr (kAhead) tile.load_columns(second_weight_vec, second_weight_ptr);
  Vec<W, V> first_weight_vec[kAhead ? P : 1];
  if constexpr (kAhead) tile.load_columns(first_weight_vec, first_weight_ptr);
  announce_row<T, kBlock>();
  const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
  const auto fetch = [&](int64_t row, Vec<X, V> (&sin_to)[P], Vec<X, V> (&second_to)[P], Vec<X, V> (&first_to)[P], Vec<X, V> (&cos_to)[P]) {
    if (row < M) {
      tile.load(sin_to, sin_ptr + row * sin_stride);
      tile.load(second_to, second_ptr + row * second_stride);
      tile.load(first_to, first_ptr + row * first_stride);
      tile.load(cos_to, cos_ptr + row * cos_stride);
    } else {
      clear(sin_to, second_to, first_to, cos_to);
    }
  };
  Vec<X, V> sin_next[P], second_next[P], first_next[P], cos_next[P];
  if constexpr (kAhead) fetch(rows.first + rows.own, sin_next, second_next, first_next, cos_next);
  for (int64_t base = rows.first; base < M; base += rows.step) {
    const int64_t row = base + rows.own;
    const bool live = row < M;
    Vec<X, V> sin_vec[P], second_vec[P], first_vec[P], cos_vec[P];
    if constexpr (kAhead) {
      copy(sin_vec, sin_next);
      copy(second_vec, second_next);
      copy(first_vec, first_next);
      copy(cos_vec, cos_next);
      fetch(row + rows.step, sin_next, second_next, first_next, cos_next);
    } else {
      fetch(row, sin_vec, second_vec, first_vec, cos_vec);
    }
    if (base == rows.first) await_row<T, kBlock>();
    RowSum<C, V> t1;
    tile.each([&](int p, int j, bool whole) {
      t1.add(m_fma(second_vec[p][j], second_vec[p][j], first_vec[p][j] * first_vec[p][j]), j, whole);
    });
    row_reduce<Sum, T, kBlock>(scratch, turn, t1.total);
    const C rstd = m_rsqrt(m_fma(C(0.5), t1.total / C(N), eps));
    if (live && thread == 0 && rstd_ptr) rstd_ptr[row] = rstd;
#pragma unroll
    for (int p = 0; p < P; ++p) {
      if constexpr (!kAhead) tile.load_columns(second_weight_vec[0], p, second_weight_ptr);
      if constexpr (!kAhead) tile.load_columns(first_weight_vec[0], p, first_weight_ptr);
      if (!tile.reaches(p)) continue;
      C turned_first_out[V];
      C turned_second_out[V];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const C t2 = (second_weight_vec[kAhead ? p : 0][j] + offset) * (second_vec[p][j] * rstd);
        const C t3 = (first_weight_vec[kAhead ? p : 0][j] + offset) * (first_vec[p][j] * rstd);
        turned_first_out[j] = m_fma(-sin_vec[p][j], t2, cos_vec[p][j] * t3);
        turned_second_out[j] = m_fma(sin_vec[p][j], t3, cos_vec[p][j] * t2);
      }
      tile.store(turned_first_ptr + row * turned_first_stride, p, turned_first_out, live);
      tile.store(turned_second_ptr + row * turned_second_stride, p, turned_second_out, live);
    }
  }
}

} // namespace avo

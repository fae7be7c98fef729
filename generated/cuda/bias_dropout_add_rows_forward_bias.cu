// Generated, do not edit. avo::bias_dropout_add_rows_forward_bias: pointwise kernel; formula: bias_dropout_add_rows_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION bias_dropout_add_rows_forward_bias
#define AVO_ARGUMENTS x_ptr, x_stride, residual_ptr, residual_stride, bias_ptr, seed_ptr, y_ptr, y_stride, p_, M, N
#define AVO_PARAMETERS(X, W, ...) \
  const X* __restrict__ x_ptr, int64_t x_stride, const X* __restrict__ residual_ptr, int64_t residual_stride, \
  const W* __restrict__ bias_ptr, const int64_t* __restrict__ seed_ptr, X* __restrict__ y_ptr, \
  int64_t y_stride, compute_t<X> p_, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, class W, int T, int P, int kN, bool kAhead>
AVO_INLINE void bias_dropout_add_rows_forward_bias(AVO_PARAMETERS(X, W, T)) {
  using C = compute_t<X>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const int column = int(blockIdx.y) * (T * P * V);
  const bool whole = int64_t(column) + T * P * V <= N && starts_at_chunk<V>(x_ptr, x_stride) && starts_at_chunk<V>(residual_ptr, residual_stride) && starts_at_chunk<V>(y_ptr, y_stride);
  const auto body = [&](const auto& tile) {
    Vec<W, V> bias_vec[kAhead ? P : 1];
    if constexpr (kAhead) tile.load_columns(bias_vec, bias_ptr);
    const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
    const auto fetch = [&](int64_t row, Vec<X, V> (&x_to)[P], Vec<X, V> (&residual_to)[P], int64_t& seed_to) {
      if (row < M) {
        tile.load(x_to, x_ptr + row * x_stride);
        tile.load(residual_to, residual_ptr + row * residual_stride);
        seed_to = seed_ptr[row];
      } else {
        clear(x_to, residual_to);
        seed_to = int64_t(0);
      }
    };
    Vec<X, V> x_next[P], residual_next[P];
    int64_t seed_next;
    if constexpr (kAhead) fetch(rows.first + rows.own, x_next, residual_next, seed_next);
    for (int64_t base = rows.first; base < M; base += rows.step) {
      const int64_t row = base + rows.own;
      const bool live = row < M;
      Vec<X, V> x_vec[P], residual_vec[P];
      int64_t seed;
      if constexpr (kAhead) {
        copy(x_vec, x_next);
        copy(residual_vec, residual_next);
        seed = seed_next;
        fetch(row + rows.step, x_next, residual_next, seed_next);
      } else {
        fetch(row, x_vec, residual_vec, seed);
      }
      const C t1 = C(1.0) / (C(1.0) - p_);
#pragma unroll
      for (int p = 0; p < P; ++p) {
        if constexpr (!kAhead) tile.load_columns(bias_vec[0], p, bias_ptr);
        if (!tile.reaches(p)) continue;
        C y_out[V];
#pragma unroll
        for (int j = 0; j < V; ++j) {
          y_out[j] = m_fma(x_vec[p][j] + bias_vec[kAhead ? p : 0][j], m_where(m_ge(m_uniform<C, V>(seed, tile.column(p), j), p_), t1, C(0.0)), residual_vec[p][j]);
        }
        tile.store(y_ptr + row * y_stride, p, y_out, live);
      }
    }
  };
  if (whole)
    body(WholeTile<T, P, V>(thread, column, N));
  else
    body(RowTile<T, P, V, kN>(thread, column, N));
}

} // namespace avo

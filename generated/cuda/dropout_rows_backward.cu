// Generated, do not edit. avo::dropout_rows_backward: pointwise kernel; formula: dropout_rows_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION dropout_rows_backward
#define AVO_ARGUMENTS grad_ptr, grad_stride, seed_ptr, grad_x_ptr, grad_x_stride, p_, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ grad_ptr, int64_t grad_stride, const int64_t* __restrict__ seed_ptr, \
  X* __restrict__ grad_x_ptr, int64_t grad_x_stride, compute_t<X> p_, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void dropout_rows_backward(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const int column = int(blockIdx.y) * (T * P * V);
  const bool whole = int64_t(column) + T * P * V <= N && starts_at_chunk<V>(grad_ptr, grad_stride) && starts_at_chunk<V>(grad_x_ptr, grad_x_stride);
  const auto body = [&](const auto& tile) {
    const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
    const auto fetch = [&](int64_t row, Vec<X, V> (&grad_to)[P], int64_t& seed_to) {
      if (row < M) {
        tile.load(grad_to, grad_ptr + row * grad_stride);
        seed_to = seed_ptr[row];
      } else {
        clear(grad_to);
        seed_to = int64_t(0);
      }
    };
    Vec<X, V> grad_next[P];
    int64_t seed_next;
    if constexpr (kAhead) fetch(rows.first + rows.own, grad_next, seed_next);
    for (int64_t base = rows.first; base < M; base += rows.step) {
      const int64_t row = base + rows.own;
      const bool live = row < M;
      Vec<X, V> grad_vec[P];
      int64_t seed;
      if constexpr (kAhead) {
        copy(grad_vec, grad_next);
        seed = seed_next;
        fetch(row + rows.step, grad_next, seed_next);
      } else {
        fetch(row, grad_vec, seed);
      }
      const C t1 = C(1.0) / (C(1.0) - p_);
#pragma unroll
      for (int p = 0; p < P; ++p) {
        if (!tile.reaches(p)) continue;
        C grad_x_out[V];
#pragma unroll
        for (int j = 0; j < V; ++j) {
          grad_x_out[j] = m_where(m_ge(m_uniform<C, V>(seed, tile.column(p), j), p_), t1, C(0.0)) * grad_vec[p][j];
        }
        tile.store(grad_x_ptr + row * grad_x_stride, p, grad_x_out, live);
      }
    }
  };
  if (whole)
    body(WholeTile<T, P, V>(thread, column, N));
  else
    body(RowTile<T, P, V, kN>(thread, column, N));
}

} // namespace avo

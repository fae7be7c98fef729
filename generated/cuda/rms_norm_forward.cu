// Generated, do not edit. avo::rms_norm_forward: row kernel
// x / sqrt(mean(x^2) + eps) * weight, or * (1 + weight) as in Gemma; eps=None: the machine epsilon of the
//   dtype of the math
// Source: Zhang and Sennrich, Root Mean Square Layer Normalization, arXiv:1910.07467
#include "device/avo.cuh"

#define AVO_FUNCTION rms_norm_forward
#define AVO_ARGUMENTS x_ptr, x_stride, y_ptr, y_stride, rstd_ptr, eps, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ x_ptr, int64_t x_stride, X* __restrict__ y_ptr, int64_t y_stride, \
  compute_t<X>* __restrict__ rstd_ptr, compute_t<X> eps, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead, int kParts = 1>
AVO_INLINE void rms_norm_forward(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const RowTile<T, P, V, kN> tile(thread, 0, N);
  __shared__ RowScratch<C, kBlock, T, 1, kParts> scratch;
  int turn = 0;
  announce_row<T, kBlock>();
  const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
  const auto fetch = [&](int64_t row, Vec<X, V> (&x_to)[P]) {
    if (row < M) {
      tile.load(x_to, x_ptr + row * x_stride);
    } else {
      clear(x_to);
    }
  };
  Vec<X, V> x_next[P];
  if constexpr (kAhead) fetch(rows.first + rows.own, x_next);
  for (int64_t base = rows.first; base < M; base += rows.step) {
    const int64_t row = base + rows.own;
    const bool live = row < M;
    Vec<X, V> x_vec[P];
    if constexpr (kAhead) {
      copy(x_vec, x_next);
      fetch(row + rows.step, x_next);
    } else {
      fetch(row, x_vec);
    }
    if (base == rows.first) await_row<T, kBlock>();
    RowSum<C, V> t1;
    tile.each([&](int p, int j, bool whole) {
      t1.add_product(x_vec[p][j], x_vec[p][j], j, whole);
    });
    row_reduce<Sum, T, kBlock>(scratch, turn, t1.total);
    const C rstd = m_rsqrt(eps + t1.total / C(N));
    if (live && thread == 0 && rstd_ptr) rstd_ptr[row] = rstd;
#pragma unroll
    for (int p = 0; p < P; ++p) {
      if (!tile.reaches(p)) continue;
      C y_out[V];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const C y = x_vec[p][j] * rstd;
        y_out[j] = y;
      }
      tile.store(y_ptr + row * y_stride, p, y_out, live);
    }
  }
}

} // namespace avo

// Generated, do not edit. avo::l2_normalize_forward: row kernel
// x / max(sqrt(sum(x^2)), eps)
// Source: Wang et al., NormFace: L2 Hypersphere Embedding for Face Verification, arXiv:1704.06369
#include "device/avo.cuh"

#define AVO_FUNCTION l2_normalize_forward
#define AVO_ARGUMENTS x_ptr, x_stride, y_ptr, y_stride, scale_ptr, norm_ptr, eps, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ x_ptr, int64_t x_stride, X* __restrict__ y_ptr, int64_t y_stride, \
  compute_t<X>* __restrict__ scale_ptr, compute_t<X>* __restrict__ norm_ptr, compute_t<X> eps, int64_t M, \
  int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead, int kParts = 1>
AVO_INLINE void l2_normalize_forward(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  using A = accuracy_t<X>;
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
    const C norm = m_sqrt(t1.total);
    const C t2 = m_max(eps, norm);
    const C scale = m_recip(t2);
    if (live && thread == 0 && scale_ptr) scale_ptr[row] = scale;
    if (live && thread == 0 && norm_ptr) norm_ptr[row] = norm;
#pragma unroll
    for (int p = 0; p < P; ++p) {
      if (!tile.reaches(p)) continue;
      C y_out[V];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        y_out[j] = m_quotient<A>(x_vec[p][j], t2, scale);
      }
      tile.store(y_ptr + row * y_stride, p, y_out, live);
    }
  }
}

} // namespace avo

// Generated, do not edit. avo::layer_norm_forward_weight_bias: row kernel; formula: layer_norm_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION layer_norm_forward_weight_bias
#define AVO_ARGUMENTS x_ptr, x_stride, weight_ptr, bias_ptr, y_ptr, y_stride, rstd_ptr, mean_ptr, residue_ptr, eps, M, N
#define AVO_PARAMETERS(X, W, ...) \
  const X* __restrict__ x_ptr, int64_t x_stride, const W* __restrict__ weight_ptr, \
  const W* __restrict__ bias_ptr, X* __restrict__ y_ptr, int64_t y_stride, compute_t<X>* __restrict__ rstd_ptr, \
  compute_t<X>* __restrict__ mean_ptr, compute_t<X>* __restrict__ residue_ptr, compute_t<X> eps, int64_t M, \
  int64_t N

namespace avo {

template <int kBlock, class X, class W, int T, int P, int kN, bool kAhead, int kParts = 1>
AVO_INLINE void layer_norm_forward_weight_bias(AVO_PARAMETERS(X, W, T)) {
  using C = compute_t<X>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const RowTile<T, P, V, kN> tile(thread, 0, N);
  __shared__ RowScratch<C, kBlock, T, 2, kParts> scratch;
  int turn = 0;
  Vec<W, V> weight_vec[kAhead ? P : 1];
  if constexpr (kAhead) tile.load_columns(weight_vec, weight_ptr);
  Vec<W, V> bias_vec[kAhead ? P : 1];
  if constexpr (kAhead) tile.load_columns(bias_vec, bias_ptr);
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
    RowSum<C, V> sum_scaled;
    tile.each([&](int p, int j, bool whole) {
      sum_scaled.add_product(x_vec[p][j], C(2.3283064365386963e-10), j, whole);
    });
    row_reduce<Sum, T, kBlock>(scratch, turn, sum_scaled.total);
    hold_packed(x_vec);
    const C mean = sum_scaled.total / C(N) * C(4294967296.0);
    RowSum<C, V> sum_centred;
    RowSum<C, V> t1;
    tile.each([&](int p, int j, bool whole) {
      const C centred = x_vec[p][j] - mean;
      sum_centred.add(centred, j, whole);
      t1.add_product(centred, centred, j, whole);
    });
    row_reduce<Sum, T, kBlock>(scratch, turn, sum_centred.total, t1.total);
    hold_packed(x_vec);
    const C t2 = sum_centred.total / C(N);
    const C residue = m_where(m_lt(m_abs(t2), highest<C>()), t2, C(0.0));
    const C variance = m_fma(-residue, residue, t1.total / C(N));
    const C rstd = m_rsqrt(eps + variance);
    const C t3 = -(residue * rstd);
    if (live && thread == 0 && rstd_ptr) rstd_ptr[row] = rstd;
    if (live && thread == 0 && mean_ptr) mean_ptr[row] = mean;
    if (live && thread == 0 && residue_ptr) residue_ptr[row] = residue;
#pragma unroll
    for (int p = 0; p < P; ++p) {
      if constexpr (!kAhead) tile.load_columns(weight_vec[0], p, weight_ptr);
      if constexpr (!kAhead) tile.load_columns(bias_vec[0], p, bias_ptr);
      if (!tile.reaches(p)) continue;
      C y_out[V];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const C centred = x_vec[p][j] - mean;
        const C y = m_fma(centred, rstd, t3);
        const C y_ = m_fma(weight_vec[kAhead ? p : 0][j], y, bias_vec[kAhead ? p : 0][j]);
        y_out[j] = y_;
      }
      tile.store(y_ptr + row * y_stride, p, y_out, live);
    }
  }
}

} // namespace avo

// Generated, do not edit. avo::add_layer_norm_forward_bias: row kernel; formula: add_layer_norm_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION add_layer_norm_forward_bias
#define AVO_ARGUMENTS x_ptr, x_stride, residual_ptr, residual_stride, bias_ptr, y_ptr, y_stride, residual_out_ptr, residual_out_stride, rstd_ptr, mean_ptr, residue_ptr, eps, M, N
#define AVO_PARAMETERS(X, W, ...) \
  const X* __restrict__ x_ptr, int64_t x_stride, const X* __restrict__ residual_ptr, int64_t residual_stride, \
  const W* __restrict__ bias_ptr, X* __restrict__ y_ptr, int64_t y_stride, X* __restrict__ residual_out_ptr, \
  int64_t residual_out_stride, compute_t<X>* __restrict__ rstd_ptr, compute_t<X>* __restrict__ mean_ptr, \
  compute_t<X>* __restrict__ residue_ptr, compute_t<X> eps, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, class W, int T, int P, int kN, bool kAhead, int kParts = 1>
AVO_INLINE void add_layer_norm_forward_bias(AVO_PARAMETERS(X, W, T)) {
  using C = compute_t<X>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const RowTile<T, P, V, kN> tile(thread, 0, N);
  __shared__ RowScratch<C, kBlock, T, 2, kParts> scratch;
  int turn = 0;
  Vec<W, V> bias_vec[kAhead ? P : 1];
  if constexpr (kAhead) tile.load_columns(bias_vec, bias_ptr);
  announce_row<T, kBlock>();
  const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
  const auto fetch = [&](int64_t row, Vec<X, V> (&x_to)[P], Vec<X, V> (&residual_to)[P]) {
    if (row < M) {
      tile.load(x_to, x_ptr + row * x_stride);
      tile.load(residual_to, residual_ptr + row * residual_stride);
    } else {
      clear(x_to, residual_to);
    }
  };
  Vec<X, V> x_next[P], residual_next[P];
  if constexpr (kAhead) fetch(rows.first + rows.own, x_next, residual_next);
  for (int64_t base = rows.first; base < M; base += rows.step) {
    const int64_t row = base + rows.own;
    const bool live = row < M;
    Vec<X, V> x_vec[P], residual_vec[P];
    if constexpr (kAhead) {
      copy(x_vec, x_next);
      copy(residual_vec, residual_next);
      fetch(row + rows.step, x_next, residual_next);
    } else {
      fetch(row, x_vec, residual_vec);
    }
    if (base == rows.first) await_row<T, kBlock>();
    Vec<X, V> residual_out_vec[P];
#pragma unroll
    for (int p = 0; p < P; ++p) {
      if (!tile.reaches(p)) continue;
      C residual_out_out[V];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const C residual_out = x_vec[p][j] + residual_vec[p][j];
        residual_out_out[j] = residual_out;
      }
      residual_out_vec[p].pack(residual_out_out);
      tile.store(residual_out_ptr + row * residual_out_stride, p, residual_out_out, live);
    }
    RowSum<C, V> sum_scaled;
    tile.each([&](int p, int j, bool whole) {
      sum_scaled.add_product(residual_out_vec[p][j], C(2.3283064365386963e-10), j, whole);
    });
    row_reduce<Sum, T, kBlock>(scratch, turn, sum_scaled.total);
    hold_packed(x_vec, residual_vec, residual_out_vec);
    const C mean = sum_scaled.total / C(N) * C(4294967296.0);
    RowSum<C, V> sum_centred;
    RowSum<C, V> t1;
    tile.each([&](int p, int j, bool whole) {
      const C centred = residual_out_vec[p][j] - mean;
      sum_centred.add(centred, j, whole);
      t1.add_product(centred, centred, j, whole);
    });
    row_reduce<Sum, T, kBlock>(scratch, turn, sum_centred.total, t1.total);
    hold_packed(x_vec, residual_vec, residual_out_vec);
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
      if constexpr (!kAhead) tile.load_columns(bias_vec[0], p, bias_ptr);
      if (!tile.reaches(p)) continue;
      C y_out[V];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const C centred = residual_out_vec[p][j] - mean;
        const C y = m_fma(centred, rstd, t3);
        const C y_ = bias_vec[kAhead ? p : 0][j] + y;
        y_out[j] = y_;
      }
      tile.store(y_ptr + row * y_stride, p, y_out, live);
    }
  }
}

} // namespace avo

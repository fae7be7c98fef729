// Generated, do not edit. avo::add_rms_norm_quantize_rows_forward_weight: row kernel; formula: add_rms_norm_quantize_rows_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION add_rms_norm_quantize_rows_forward_weight
#define AVO_ARGUMENTS x_ptr, x_stride, residual_ptr, residual_stride, weight_ptr, q_ptr, q_stride, residual_out_ptr, residual_out_stride, scale_ptr, eps, M, N
#define AVO_PARAMETERS(X, W, ...) \
  const X* __restrict__ x_ptr, int64_t x_stride, const X* __restrict__ residual_ptr, int64_t residual_stride, \
  const W* __restrict__ weight_ptr, f8* __restrict__ q_ptr, int64_t q_stride, X* __restrict__ residual_out_ptr, \
  int64_t residual_out_stride, compute_t<X>* __restrict__ scale_ptr, compute_t<X> eps, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, class W, int T, int P, int kN, bool kAhead, int kParts = 1>
AVO_INLINE void add_rms_norm_quantize_rows_forward_weight(AVO_PARAMETERS(X, W, T)) {
  using C = compute_t<X>;
  using A = accuracy_t<X, W>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const RowTile<T, P, V, kN> tile(thread, 0, N);
  __shared__ RowScratch<C, kBlock, T, 1, kParts> scratch;
  int turn = 0;
  Vec<W, V> weight_vec[P];
  tile.load_columns(weight_vec, weight_ptr);
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
    RowSum<C, V> t1;
    tile.each([&](int p, int j, bool whole) {
      t1.add_product(residual_out_vec[p][j], residual_out_vec[p][j], j, whole);
    });
    row_reduce<Sum, T, kBlock>(scratch, turn, t1.total);
    hold_packed(x_vec, residual_vec, residual_out_vec);
    const C rstd = m_rsqrt(eps + t1.total / C(N));
    C t2 = lowest<C>();
    tile.each([&](int p, int j, bool) {
      const C y = residual_out_vec[p][j] * rstd;
      const C y_ = weight_vec[p][j] * y;
      t2 = m_max(t2, m_abs(y_));
    });
    row_reduce<Max, T, kBlock>(scratch, turn, t2);
    hold_packed(x_vec, residual_vec, residual_out_vec);
    const C scale = m_round_f32(m_max(C(4.359654017857143e-06), t2 / C(448.0)));
    const C t3 = m_recip(scale);
    if (live && thread == 0 && scale_ptr) scale_ptr[row] = scale;
#pragma unroll
    for (int p = 0; p < P; ++p) {
      if (!tile.reaches(p)) continue;
      C q_out[V];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const C y = residual_out_vec[p][j] * rstd;
        const C y_ = weight_vec[p][j] * y;
        const C q = m_quotient<A>(y_, scale, t3);
        q_out[j] = m_min(C(448.0), m_max(C(-448.0), q));
      }
      tile.store(q_ptr + row * q_stride, p, q_out, live);
    }
  }
}

} // namespace avo

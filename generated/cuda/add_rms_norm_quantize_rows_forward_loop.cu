// Generated, do not edit. avo::add_rms_norm_quantize_rows_forward_loop: loop kernel; formula: add_rms_norm_quantize_rows_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION add_rms_norm_quantize_rows_forward_loop
#define AVO_ARGUMENTS x_ptr, x_stride, residual_ptr, residual_stride, q_ptr, q_stride, residual_out_ptr, residual_out_stride, scale_ptr, eps, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ x_ptr, int64_t x_stride, const X* __restrict__ residual_ptr, int64_t residual_stride, \
  f8* __restrict__ q_ptr, int64_t q_stride, X* __restrict__ residual_out_ptr, int64_t residual_out_stride, \
  compute_t<X>* __restrict__ scale_ptr, compute_t<X> eps, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void add_rms_norm_quantize_rows_forward_loop(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  using A = accuracy_t<X>;
  constexpr int V = kVector<X>;
  const int thread = thread_of_row<T, kBlock>();
  __shared__ RowScratch<C, kBlock, T, 1> scratch;
  int turn = 0;
  const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
  for (int64_t base = rows.first; base < M; base += rows.step) {
    const int64_t row = base + rows.own;
    const bool live = row < M;
    RowSum<C, V> t1;
    for (int64_t column = 0; column < N; column += T * P * V) {
      const RowTile<T, P, V, kN, int64_t> tile(thread, column, N);
      Vec<X, V> x_vec[P];
      if (live)
        tile.load(x_vec, x_ptr + row * x_stride);
      else
        clear(x_vec);
      Vec<X, V> residual_vec[P];
      if (live)
        tile.load(residual_vec, residual_ptr + row * residual_stride);
      else
        clear(residual_vec);
      tile.each([&](int p, int j, bool whole) {
        const C residual_out = x_vec[p][j] + residual_vec[p][j];
        const C t2 = m_round_to<X>(residual_out);
        t1.add_product(t2, t2, j, whole);
      });
    }
    row_reduce<Sum, T, kBlock>(scratch, turn, t1.total);
    const C rstd = m_rsqrt(eps + t1.total / C(N));
    C t2 = lowest<C>();
    for (int64_t column = 0; column < N; column += T * P * V) {
      const RowTile<T, P, V, kN, int64_t> tile(thread, column, N);
      Vec<X, V> x_vec[P];
      if (live)
        tile.load(x_vec, x_ptr + row * x_stride);
      else
        clear(x_vec);
      Vec<X, V> residual_vec[P];
      if (live)
        tile.load(residual_vec, residual_ptr + row * residual_stride);
      else
        clear(residual_vec);
      tile.each([&](int p, int j, bool) {
        const C residual_out = x_vec[p][j] + residual_vec[p][j];
        const C y = m_round_to<X>(residual_out) * rstd;
        t2 = m_max(t2, m_abs(y));
      });
    }
    row_reduce<Max, T, kBlock>(scratch, turn, t2);
    const C scale = m_round_f32(m_max(C(4.359654017857143e-06), t2 / C(448.0)));
    const C t3 = m_recip(scale);
    if (live && thread == 0 && scale_ptr) scale_ptr[row] = scale;
    for (int64_t column = 0; column < N; column += T * P * V) {
      const RowTile<T, P, V, kN, int64_t> tile(thread, column, N);
      Vec<X, V> x_vec[P];
      if (live)
        tile.load(x_vec, x_ptr + row * x_stride);
      else
        clear(x_vec);
      Vec<X, V> residual_vec[P];
      if (live)
        tile.load(residual_vec, residual_ptr + row * residual_stride);
      else
        clear(residual_vec);
#pragma unroll
      for (int p = 0; p < P; ++p) {
        C q_out[V];
        C residual_out_out[V];
#pragma unroll
        for (int j = 0; j < V; ++j) {
          const C residual_out = x_vec[p][j] + residual_vec[p][j];
          const C y = m_round_to<X>(residual_out) * rstd;
          const C q = m_quotient<A>(y, scale, t3);
          q_out[j] = m_min(C(448.0), m_max(C(-448.0), q));
          residual_out_out[j] = residual_out;
        }
        tile.store(q_ptr + row * q_stride, p, q_out, live);
        tile.store(residual_out_ptr + row * residual_out_stride, p, residual_out_out, live);
      }
    }
  }
}

} // namespace avo

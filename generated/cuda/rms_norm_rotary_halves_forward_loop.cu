// Generated, do not edit. avo::rms_norm_rotary_halves_forward_loop: loop kernel; formula: rms_norm_rotary_halves_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION rms_norm_rotary_halves_forward_loop
#define AVO_ARGUMENTS sin_ptr, sin_stride, second_ptr, second_stride, first_ptr, first_stride, cos_ptr, cos_stride, second_weight_ptr, first_weight_ptr, turned_first_ptr, turned_first_stride, turned_second_ptr, turned_second_stride, rstd_ptr, offset, eps, M, N
#define AVO_PARAMETERS(X, W, ...) \
  const X* __restrict__ sin_ptr, int64_t sin_stride, const X* __restrict__ second_ptr, int64_t second_stride, \
  const X* __restrict__ first_ptr, int64_t first_stride, const X* __restrict__ cos_ptr, int64_t cos_stride, \
  const W* __restrict__ second_weight_ptr, const W* __restrict__ first_weight_ptr, \
  X* __restrict__ turned_first_ptr, int64_t turned_first_stride, X* __restrict__ turned_second_ptr, \
  int64_t turned_second_stride, compute_t<X>* __restrict__ rstd_ptr, compute_t<X> offset, compute_t<X> eps, \
  int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, class W, int T, int P, int kN, bool kAhead>
AVO_INLINE void rms_norm_rotary_halves_forward_loop(AVO_PARAMETERS(X, W, T)) {
  using C = compute_t<X>;
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
      Vec<X, V> second_vec[P];
      if (live)
        tile.load(second_vec, second_ptr + row * second_stride);
      else
        clear(second_vec);
      Vec<X, V> first_vec[P];
      if (live)
        tile.load(first_vec, first_ptr + row * first_stride);
      else
        clear(first_vec);
      tile.each([&](int p, int j, bool whole) {
        t1.add(m_fma(second_vec[p][j], second_vec[p][j], first_vec[p][j] * first_vec[p][j]), j, whole);
      });
    }
    row_reduce<Sum, T, kBlock>(scratch, turn, t1.total);
    const C rstd = m_rsqrt(m_fma(C(0.5), t1.total / C(N), eps));
    if (live && thread == 0 && rstd_ptr) rstd_ptr[row] = rstd;
    for (int64_t column = 0; column < N; column += T * P * V) {
      const RowTile<T, P, V, kN, int64_t> tile(thread, column, N);
      Vec<X, V> sin_vec[P];
      if (live)
        tile.load(sin_vec, sin_ptr + row * sin_stride);
      else
        clear(sin_vec);
      Vec<X, V> second_vec[P];
      if (live)
        tile.load(second_vec, second_ptr + row * second_stride);
      else
        clear(second_vec);
      Vec<X, V> first_vec[P];
      if (live)
        tile.load(first_vec, first_ptr + row * first_stride);
      else
        clear(first_vec);
      Vec<X, V> cos_vec[P];
      if (live)
        tile.load(cos_vec, cos_ptr + row * cos_stride);
      else
        clear(cos_vec);
      Vec<W, V> second_weight_vec[P];
      tile.load_columns(second_weight_vec, second_weight_ptr);
      Vec<W, V> first_weight_vec[P];
      tile.load_columns(first_weight_vec, first_weight_ptr);
#pragma unroll
      for (int p = 0; p < P; ++p) {
        C turned_first_out[V];
        C turned_second_out[V];
#pragma unroll
        for (int j = 0; j < V; ++j) {
          const C t2 = (second_weight_vec[p][j] + offset) * (second_vec[p][j] * rstd);
          const C t3 = (first_weight_vec[p][j] + offset) * (first_vec[p][j] * rstd);
          turned_first_out[j] = m_fma(-sin_vec[p][j], t2, cos_vec[p][j] * t3);
          turned_second_out[j] = m_fma(sin_vec[p][j], t3, cos_vec[p][j] * t2);
        }
        tile.store(turned_first_ptr + row * turned_first_stride, p, turned_first_out, live);
        tile.store(turned_second_ptr + row * turned_second_stride, p, turned_second_out, live);
      }
    }
  }
}

} // namespace avo

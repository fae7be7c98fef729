// Generated, do not edit. avo::swiglu_packed_quantize_rows_forward_int8_loop: loop kernel; formula: swiglu_packed_quantize_rows_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION swiglu_packed_quantize_rows_forward_int8_loop
#define AVO_ARGUMENTS up_ptr, up_stride, gate_ptr, gate_stride, q_ptr, q_stride, scale_ptr, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ up_ptr, int64_t up_stride, const X* __restrict__ gate_ptr, int64_t gate_stride, \
  i8* __restrict__ q_ptr, int64_t q_stride, compute_t<X>* __restrict__ scale_ptr, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead>
AVO_INLINE void swiglu_packed_quantize_rows_forward_int8_loop(AVO_PARAMETERS(X, T)) {
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
    C t1 = lowest<C>();
    for (int64_t column = 0; column < N; column += T * P * V) {
      const RowTile<T, P, V, kN, int64_t> tile(thread, column, N);
      Vec<X, V> up_vec[P];
      if (live)
        tile.load(up_vec, up_ptr + row * up_stride);
      else
        clear(up_vec);
      Vec<X, V> gate_vec[P];
      if (live)
        tile.load(gate_vec, gate_ptr + row * gate_stride);
      else
        clear(gate_vec);
      tile.each([&](int p, int j, bool) {
        t1 = m_max(t1, m_abs(up_vec[p][j] * m_x_sigmoid<A>(gate_vec[p][j])));
      });
    }
    row_reduce<Max, T, kBlock>(scratch, turn, t1);
    const C scale = m_round_f32(m_max(t1 / C(127.0), C(1.5378937007874016e-05)));
    const C t2 = m_recip(scale);
    if (live && thread == 0 && scale_ptr) scale_ptr[row] = scale;
    for (int64_t column = 0; column < N; column += T * P * V) {
      const RowTile<T, P, V, kN, int64_t> tile(thread, column, N);
      Vec<X, V> up_vec[P];
      if (live)
        tile.load(up_vec, up_ptr + row * up_stride);
      else
        clear(up_vec);
      Vec<X, V> gate_vec[P];
      if (live)
        tile.load(gate_vec, gate_ptr + row * gate_stride);
      else
        clear(gate_vec);
#pragma unroll
      for (int p = 0; p < P; ++p) {
        C q_out[V];
#pragma unroll
        for (int j = 0; j < V; ++j) {
          const C q = m_quotient<A>(up_vec[p][j] * m_x_sigmoid<A>(gate_vec[p][j]), scale, t2);
          q_out[j] = m_min(C(127.0), m_max(C(-128.0), m_round(m_where(m_eq(q, q), q, C(0.0)))));
        }
        tile.store(q_ptr + row * q_stride, p, q_out, live);
      }
    }
  }
}

} // namespace avo

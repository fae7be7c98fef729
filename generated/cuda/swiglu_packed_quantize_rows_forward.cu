// Generated, do not edit. avo::swiglu_packed_quantize_rows_forward: row kernel
// q = gate * sigmoid(gate) * up / scale, to nearest even, within [-448, 448] or [-128, 127]; scale =
//   max(max(|gate * sigmoid(gate) * up|) / 448, 1 / (512 * 448)) of each row, 127 instead of 448 for int8;
//   gate, up = the halves of the last dim of x
// Source: Shazeer, GLU Variants Improve Transformer, arXiv:2002.05202; Micikevicius et al., FP8 Formats for
//   Deep Learning, arXiv:2209.05433 (e4m3)
#include "device/avo.cuh"

#define AVO_FUNCTION swiglu_packed_quantize_rows_forward
#define AVO_ARGUMENTS up_ptr, up_stride, gate_ptr, gate_stride, q_ptr, q_stride, scale_ptr, M, N
#define AVO_PARAMETERS(X, ...) \
  const X* __restrict__ up_ptr, int64_t up_stride, const X* __restrict__ gate_ptr, int64_t gate_stride, \
  f8* __restrict__ q_ptr, int64_t q_stride, compute_t<X>* __restrict__ scale_ptr, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, int T, int P, int kN, bool kAhead, int kParts = 1, bool kKeep = false>
AVO_INLINE void swiglu_packed_quantize_rows_forward(AVO_PARAMETERS(X, T)) {
  using C = compute_t<X>;
  using A = accuracy_t<X>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const RowTile<T, P, V, kN> tile(thread, 0, N);
  __shared__ RowScratch<C, kBlock, T, 1, kParts> scratch;
  int turn = 0;
  announce_row<T, kBlock>();
  const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
  const auto fetch = [&](int64_t row, Vec<X, V> (&up_to)[P], Vec<X, V> (&gate_to)[P]) {
    if (row < M) {
      tile.load(up_to, up_ptr + row * up_stride);
      tile.load(gate_to, gate_ptr + row * gate_stride);
    } else {
      clear(up_to, gate_to);
    }
  };
  Vec<X, V> up_next[P], gate_next[P];
  if constexpr (kAhead) fetch(rows.first + rows.own, up_next, gate_next);
  for (int64_t base = rows.first; base < M; base += rows.step) {
    const int64_t row = base + rows.own;
    const bool live = row < M;
    Vec<X, V> up_vec[P], gate_vec[P];
    if constexpr (kAhead) {
      copy(up_vec, up_next);
      copy(gate_vec, gate_next);
      fetch(row + rows.step, up_next, gate_next);
    } else {
      fetch(row, up_vec, gate_vec);
    }
    if (base == rows.first) await_row<T, kBlock>();
    C t1 = lowest<C>();
    C x_sigmoid_kept[P][V] = {};
    tile.each([&](int p, int j, bool) {
      const C t2 = m_x_sigmoid<A>(gate_vec[p][j]);
      if constexpr (kKeep) x_sigmoid_kept[p][j] = t2;
      t1 = m_max(t1, m_abs(up_vec[p][j] * t2));
    });
    row_reduce<Max, T, kBlock>(scratch, turn, t1);
    const C scale = m_round_f32(m_max(t1 / C(448.0), C(4.359654017857143e-06)));
    const C t2 = m_recip(scale);
    if (live && thread == 0 && scale_ptr) scale_ptr[row] = scale;
#pragma unroll
    for (int p = 0; p < P; ++p) {
      if (!tile.reaches(p)) continue;
      C q_out[V];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const C t3 = kKeep ? x_sigmoid_kept[p][j] : m_x_sigmoid<A>(gate_vec[p][j]);
        const C q = m_quotient<A>(up_vec[p][j] * t3, scale, t2);
        q_out[j] = m_min(C(448.0), m_max(C(-448.0), q));
      }
      tile.store(q_ptr + row * q_stride, p, q_out, live);
    }
  }
}

} // namespace avo

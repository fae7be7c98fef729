// Generated, do not edit. avo::gated_rms_norm_forward_gate_first: row kernel; formula: gated_rms_norm_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION gated_rms_norm_forward_gate_first
#define AVO_ARGUMENTS x_ptr, x_stride, gate_ptr, gate_stride, weight_ptr, y_ptr, y_stride, rstd_ptr, eps, M, N
#define AVO_PARAMETERS(X, W, ...) \
  const X* __restrict__ x_ptr, int64_t x_stride, const X* __restrict__ gate_ptr, int64_t gate_stride, \
  const W* __restrict__ weight_ptr, X* __restrict__ y_ptr, int64_t y_stride, \
  compute_t<X>* __restrict__ rstd_ptr, compute_t<X> eps, int64_t M, int64_t N

namespace avo {

template <int kBlock, class X, class W, int T, int P, int kN, bool kAhead, int kParts = 1, bool kKeep = false>
AVO_INLINE void gated_rms_norm_forward_gate_first(AVO_PARAMETERS(X, W, T)) {
  using C = compute_t<X>;
  using A = accuracy_t<X, W>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const RowTile<T, P, V, kN> tile(thread, 0, N);
  __shared__ RowScratch<C, kBlock, T, 1, kParts> scratch;
  int turn = 0;
  Vec<W, V> weight_vec[kAhead ? P : 1];
  if constexpr (kAhead) tile.load_columns(weight_vec, weight_ptr);
  announce_row<T, kBlock>();
  const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
  const auto fetch = [&](int64_t row, Vec<X, V> (&x_to)[P], Vec<X, V> (&gate_to)[P]) {
    if (row < M) {
      tile.load(x_to, x_ptr + row * x_stride);
      tile.load(gate_to, gate_ptr + row * gate_stride);
    } else {
      clear(x_to, gate_to);
    }
  };
  Vec<X, V> x_next[P], gate_next[P];
  if constexpr (kAhead) fetch(rows.first + rows.own, x_next, gate_next);
  for (int64_t base = rows.first; base < M; base += rows.step) {
    const int64_t row = base + rows.own;
    const bool live = row < M;
    Vec<X, V> x_vec[P], gate_vec[P];
    if constexpr (kAhead) {
      copy(x_vec, x_next);
      copy(gate_vec, gate_next);
      fetch(row + rows.step, x_next, gate_next);
    } else {
      fetch(row, x_vec, gate_vec);
    }
    if (base == rows.first) await_row<T, kBlock>();
    RowSum<C, V> t1;
    C x_sigmoid_kept[P][V] = {};
    tile.each([&](int p, int j, bool whole) {
      const C t2 = m_x_sigmoid<A>(gate_vec[p][j]);
      if constexpr (kKeep) x_sigmoid_kept[p][j] = t2;
      const C t3 = x_vec[p][j] * t2;
      t1.add_product(t3, t3, j, whole);
    });
    row_reduce<Sum, T, kBlock>(scratch, turn, t1.total);
    const C rstd = m_rsqrt(eps + t1.total / C(N));
    if (live && thread == 0 && rstd_ptr) rstd_ptr[row] = rstd;
#pragma unroll
    for (int p = 0; p < P; ++p) {
      if constexpr (!kAhead) tile.load_columns(weight_vec[0], p, weight_ptr);
      if (!tile.reaches(p)) continue;
      C y_out[V];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const C t2 = kKeep ? x_sigmoid_kept[p][j] : m_x_sigmoid<A>(gate_vec[p][j]);
        const C y = x_vec[p][j] * t2 * rstd;
        const C y_ = weight_vec[kAhead ? p : 0][j] * y;
        y_out[j] = y_;
      }
      tile.store(y_ptr + row * y_stride, p, y_out, live);
    }
  }
}

} // namespace avo

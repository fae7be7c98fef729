// Generated, do not edit. avo::gated_rms_norm_backward_to_x: row kernel; formula: gated_rms_norm_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION gated_rms_norm_backward_to_x
#define AVO_ARGUMENTS x_ptr, x_stride, gate_ptr, gate_stride, grad_ptr, grad_stride, weight_ptr, rstd_ptr, grad_x_ptr, grad_x_stride, M, N
#define AVO_PARAMETERS(X, W, ...) \
  const X* __restrict__ x_ptr, int64_t x_stride, const X* __restrict__ gate_ptr, int64_t gate_stride, \
  const X* __restrict__ grad_ptr, int64_t grad_stride, const W* __restrict__ weight_ptr, \
  const compute_t<X>* __restrict__ rstd_ptr, X* __restrict__ grad_x_ptr, int64_t grad_x_stride, int64_t M, \
  int64_t N

namespace avo {

template <int kBlock, class X, class W, int T, int P, int kN, bool kAhead, int kParts = 1, bool kKeep = false>
AVO_INLINE void gated_rms_norm_backward_to_x(AVO_PARAMETERS(X, W, T)) {
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
  const auto fetch = [&](int64_t row, Vec<X, V> (&x_to)[P], Vec<X, V> (&gate_to)[P], Vec<X, V> (&grad_to)[P], C& rstd_to) {
    if (row < M) {
      tile.load(x_to, x_ptr + row * x_stride);
      tile.load(gate_to, gate_ptr + row * gate_stride);
      tile.load(grad_to, grad_ptr + row * grad_stride);
      rstd_to = rstd_ptr[row];
    } else {
      clear(x_to, gate_to, grad_to);
      rstd_to = C(0);
    }
  };
  Vec<X, V> x_next[P], gate_next[P], grad_next[P];
  C rstd_next;
  if constexpr (kAhead) fetch(rows.first + rows.own, x_next, gate_next, grad_next, rstd_next);
  for (int64_t base = rows.first; base < M; base += rows.step) {
    const int64_t row = base + rows.own;
    const bool live = row < M;
    Vec<X, V> x_vec[P], gate_vec[P], grad_vec[P];
    C rstd;
    if constexpr (kAhead) {
      copy(x_vec, x_next);
      copy(gate_vec, gate_next);
      copy(grad_vec, grad_next);
      rstd = rstd_next;
      fetch(row + rows.step, x_next, gate_next, grad_next, rstd_next);
    } else {
      fetch(row, x_vec, gate_vec, grad_vec, rstd);
    }
    if (base == rows.first) await_row<T, kBlock>();
    RowSum<C, V> t1;
    C x_sigmoid_kept[P][V] = {};
    tile.each([&](int p, int j, bool whole) {
      const C y = x_vec[p][j] * rstd;
      const C t2 = m_x_sigmoid<A>(gate_vec[p][j]);
      if constexpr (kKeep) x_sigmoid_kept[p][j] = t2;
      t1.add_product(y, weight_vec[p][j] * (t2 * grad_vec[p][j]), j, whole);
    });
    row_reduce<Sum, T, kBlock>(scratch, turn, t1.total);
    const C t2 = rstd * (-t1.total / C(N));
#pragma unroll
    for (int p = 0; p < P; ++p) {
      if (!tile.reaches(p)) continue;
      C grad_x_out[V];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const C y = x_vec[p][j] * rstd;
        const C t3 = kKeep ? x_sigmoid_kept[p][j] : m_x_sigmoid<A>(gate_vec[p][j]);
        grad_x_out[j] = m_fma(y, t2, rstd * (weight_vec[p][j] * (t3 * grad_vec[p][j])));
      }
      tile.store(grad_x_ptr + row * grad_x_stride, p, grad_x_out, live);
    }
  }
}

} // namespace avo

// Generated, do not edit. avo::group_norm_silu_backward_weight_bias_to_x: row kernel; formula: group_norm_silu_forward.cu
#include "device/avo.cuh"

#define AVO_FUNCTION group_norm_silu_backward_weight_bias_to_x
#define AVO_ARGUMENTS x_ptr, x_stride, grad_ptr, grad_stride, weight_ptr, bias_ptr, rstd_ptr, mean_ptr, residue_ptr, grad_x_ptr, grad_x_stride, run, runs, channels, M, N
#define AVO_PARAMETERS(X, W, ...) \
  const X* __restrict__ x_ptr, int64_t x_stride, const X* __restrict__ grad_ptr, int64_t grad_stride, \
  const W* __restrict__ weight_ptr, const W* __restrict__ bias_ptr, const compute_t<X>* __restrict__ rstd_ptr, \
  const compute_t<X>* __restrict__ mean_ptr, const compute_t<X>* __restrict__ residue_ptr, \
  X* __restrict__ grad_x_ptr, int64_t grad_x_stride, int64_t run, int64_t runs, int64_t channels, int64_t M, \
  int64_t N

namespace avo {

template <int kBlock, class X, class W, int T, int P, int kN, bool kAhead, int kParts = 1, bool kKeep = false>
AVO_INLINE void group_norm_silu_backward_weight_bias_to_x(AVO_PARAMETERS(X, W, T)) {
  using C = compute_t<X>;
  using A = accuracy_t<X, W>;
  constexpr int V = kVector<X, kN>;
  const int thread = thread_of_row<T, kBlock>();
  const RowTile<T, P, V, kN> tile(thread, 0, N);
  __shared__ RowScratch<C, kBlock, T, 2, kParts> scratch;
  int turn = 0;
  announce_row<T, kBlock>();
  const BlockRows<T, kBlock> rows(blockIdx.x, gridDim.x);
  const auto fetch = [&](int64_t row, Vec<X, V> (&x_to)[P], Vec<X, V> (&grad_to)[P], C& rstd_to, C& mean_to, C& residue_to) {
    if (row < M) {
      tile.load(x_to, x_ptr + row * x_stride);
      tile.load(grad_to, grad_ptr + row * grad_stride);
      rstd_to = rstd_ptr[row];
      mean_to = mean_ptr[row];
      residue_to = residue_ptr[row];
    } else {
      clear(x_to, grad_to);
      rstd_to = C(0);
      mean_to = C(0);
      residue_to = C(0);
    }
  };
  Vec<X, V> x_next[P], grad_next[P];
  C rstd_next, mean_next, residue_next;
  if constexpr (kAhead) fetch(rows.first + rows.own, x_next, grad_next, rstd_next, mean_next, residue_next);
  for (int64_t base = rows.first; base < M; base += rows.step) {
    const int64_t row = base + rows.own;
    const bool live = row < M;
    Vec<X, V> x_vec[P], grad_vec[P];
    C rstd, mean, residue;
    if constexpr (kAhead) {
      copy(x_vec, x_next);
      copy(grad_vec, grad_next);
      rstd = rstd_next;
      mean = mean_next;
      residue = residue_next;
      fetch(row + rows.step, x_next, grad_next, rstd_next, mean_next, residue_next);
    } else {
      fetch(row, x_vec, grad_vec, rstd, mean, residue);
    }
    const int64_t first_run = live ? row * runs % channels : 0;
    Vec<W, V> weight_vec[P];
    tile.load_runs(weight_vec, weight_ptr + first_run, run);
    Vec<W, V> bias_vec[P];
    tile.load_runs(bias_vec, bias_ptr + first_run, run);
    if (base == rows.first) await_row<T, kBlock>();
    RowSum<C, V> t1;
    RowSum<C, V> t2;
    C sigmoid_kept[P][V] = {};
    C sigmoid_rest_kept[P][V] = {};
    tile.each([&](int p, int j, bool whole) {
      const C centred = x_vec[p][j] - mean;
      const C y = rstd * (centred - residue);
      const C y_ = m_fma(weight_vec[p][j], y, bias_vec[p][j]);
      const C t3 = m_sigmoid<A>(y_);
      if constexpr (kKeep) sigmoid_kept[p][j] = t3;
      const C t4 = m_sigmoid_rest<A>(y_, t3);
      if constexpr (kKeep) sigmoid_rest_kept[p][j] = t4;
      const C t5 = m_fma(t3 * t4, grad_vec[p][j] * y_, grad_vec[p][j] * t3);
      t1.add_product(weight_vec[p][j], t5, j, whole);
      t2.add_product(y, weight_vec[p][j] * t5, j, whole);
    });
    row_reduce<Sum, T, kBlock>(scratch, turn, t1.total, t2.total);
    const C t3 = -(rstd * t1.total) / C(N);
    const C t4 = rstd * (-t2.total / C(N));
#pragma unroll
    for (int p = 0; p < P; ++p) {
      if (!tile.reaches(p)) continue;
      C grad_x_out[V];
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const C centred = x_vec[p][j] - mean;
        const C y = rstd * (centred - residue);
        const C y_ = m_fma(weight_vec[p][j], y, bias_vec[p][j]);
        const C t5 = kKeep ? sigmoid_kept[p][j] : m_sigmoid<A>(y_);
        const C t6 = kKeep ? sigmoid_rest_kept[p][j] : m_sigmoid_rest<A>(y_, t5);
        grad_x_out[j] = t3 + m_fma(rstd * centred, t4, rstd * (weight_vec[p][j] * m_fma(t5 * t6, grad_vec[p][j] * y_, grad_vec[p][j] * t5)));
      }
      tile.store(grad_x_ptr + row * grad_x_stride, p, grad_x_out, live);
    }
  }
}

} // namespace avo

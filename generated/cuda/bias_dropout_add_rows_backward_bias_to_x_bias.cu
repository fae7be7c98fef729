// avo::bias_dropout_add_rows_backward_bias_to_x_bias: column kernel. Written by the generator from definitions/; do not edit.
// residual + dropout(x + bias); dropout(x) = x / (1 - p) where Philox(seed of the row, column) >= p, else 0
// Source: Srivastava et al., Dropout, JMLR 15 (2014), 1929-1958; Salmon et al., Parallel random numbers: as
//   easy as 1, 2, 3, SC 2011 (Philox4x32-10)
#include "device/avo.cuh"

namespace avo {

template <class X, int kBlock, int T, int P, int kN, bool kAhead>
AVO_INLINE void bias_dropout_add_rows_backward_bias_to_x_bias(
    const X* __restrict__ grad_ptr, int64_t grad_stride, const int64_t* __restrict__ seed_ptr,
    X* __restrict__ grad_x_ptr, int64_t grad_x_stride, compute_t<X>* __restrict__ partials, compute_t<X> p_,
    int64_t M, int64_t N) {
  using C = compute_t<X>;
  using A = Fine;
  constexpr int V = kVector<X>;
  constexpr int R = kBlock / T; // rows of a block
  const int thread = thread_of_row<T, kBlock>();
  const int column = int(blockIdx.x) * (T * P * V);
  const bool whole = int64_t(column) + T * P * V <= N && starts_at_chunk(grad_ptr, grad_stride) && starts_at_chunk(grad_x_ptr, grad_x_stride);
  const auto body = [&](const auto& tile) {
    let_next_kernel_begin();
    C sum_grad_bias[P][V] = {};
    const int64_t step = int64_t(gridDim.y) * R;
    const int64_t first = int64_t(blockIdx.y) * R;
    const int own = int(threadIdx.x) / T; // which of the block's rows
    const auto fetch = [&](int64_t row, Vec<X, V> (&grad_to)[P], int64_t& seed_to) {
      if (row < M) {
        tile.load(grad_to, grad_ptr + row * grad_stride);
        seed_to = seed_ptr[row];
      } else {
        clear(grad_to);
        seed_to = int64_t(0);
      }
    };
    // kAhead: a persistent block keeps the column operands, and loads the next row before it treats a row.
    Vec<X, V> grad_next[P];
    int64_t seed_next;
    if constexpr (kAhead) fetch(first + own, grad_next, seed_next);
    for (int64_t base = first; base < M; base += step) {
      const int64_t row = base + own;
      const bool live = row < M;
      Vec<X, V> grad_vec[P];
      int64_t seed;
      if constexpr (kAhead) {
#pragma unroll
        for (int p = 0; p < P; ++p) grad_vec[p] = grad_next[p];
        seed = seed_next;
        fetch(row + step, grad_next, seed_next);
      } else {
        fetch(row, grad_vec, seed);
      }
      const C t1 = C(1.0) - p_;
      const C t2 = m_recip(t1);
#pragma unroll
      for (int p = 0; p < P; ++p) {
        if (!tile.reaches(p)) continue;
        C grad_x_out[V];
#pragma unroll
        for (int j = 0; j < V; ++j) {
          const C t3 = m_quotient<A>(m_where(m_ge(m_uniform<C, V>(seed, tile.column(p), j), p_), grad_vec[p][j], C(0.0)), t1, t2);
          grad_x_out[j] = t3;
          if (live) sum_grad_bias[p][j] += t3;
        }
        tile.store(grad_x_ptr + row * grad_x_stride, p, grad_x_out, live);
      }
    }
    __shared__ C shared[R > 1 ? T * P * V : 1];
    write_partial<R>(tile, sum_grad_bias, shared, partials + int64_t(blockIdx.y) * N);
  };
  if (whole)
    body(WholeTile<T, P, V>(thread, column, N));
  else
    body(RowTile<T, P, V, kN>(thread, column, N));
}

} // namespace avo

#define AVO_KERNEL(NAME, BLOCK, MIN_BLOCKS, X, T, P, N_, AHEAD) \
  extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS) NAME( \
      const avo::X* __restrict__ grad_ptr, int64_t grad_stride, const int64_t* __restrict__ seed_ptr, \
      avo::X* __restrict__ grad_x_ptr, int64_t grad_x_stride, \
      avo::compute_t<avo::X>* __restrict__ partials, avo::compute_t<avo::X> p_, int64_t M, int64_t N) { \
    avo::bias_dropout_add_rows_backward_bias_to_x_bias<avo::X, BLOCK, T, P, N_, AHEAD>(grad_ptr, grad_stride, seed_ptr, grad_x_ptr, grad_x_stride, partials, p_, M, N); \
  }

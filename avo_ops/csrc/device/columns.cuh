// Sums over the rows: each block leaves one row of partial sums, a second kernel adds them in a fixed order.
#pragma once

#include "tile.cuh"

namespace avo {

// The kernel that adds the partial rows may be launched while the one that writes them runs (programmatic dependent
// launch, sm_90 and later); it waits until that has ended.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
AVO_INLINE void let_next_kernel_begin() { asm volatile("griddepcontrol.launch_dependents;"); }
AVO_INLINE void wait_for_previous_kernel() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
#else
AVO_INLINE void let_next_kernel_begin() {}
AVO_INLINE void wait_for_previous_kernel() {}
#endif

// Add up the accumulators of the block's rows in ascending order and write them to `partial` (the tile's columns of one
// row). `shared` holds T * P * V values; it is not used where the block has one row.
template <int kRows, int T, int P, int V, int kN, class Index, class C>
AVO_INLINE void write_partial(const RowTile<T, P, V, kN, Index> &tile, C (&sum)[P][V], C *shared,
                              C *__restrict__ partial) {
  const int own = int(threadIdx.x) / T;
#pragma unroll 1
  for (int r = 1; r < kRows; ++r) {
    __syncthreads();
    if (own == r) {
#pragma unroll
      for (int p = 0; p < P; ++p)
#pragma unroll
        for (int j = 0; j < V; ++j) shared[(p * V + j) * T + tile.thread] = sum[p][j];
    }
    __syncthreads();
    if (own == 0) {
#pragma unroll
      for (int p = 0; p < P; ++p)
#pragma unroll
        for (int j = 0; j < V; ++j) sum[p][j] += shared[(p * V + j) * T + tile.thread];
    }
  }
  if (own != 0) return;
#pragma unroll
  for (int p = 0; p < P; ++p) {
    const Index left = tile.left(p);
    C *out = partial + tile.column(p);
    if constexpr (V == 1) {
      if (left > 0) *out = sum[p][0];
    } else if (left >= V && uint32_t(uint64_t(out)) % 16 == 0) {
      Vec<C, V> v;
      v.pack(sum[p]);
      v.store(out);
    } else {
#pragma unroll
      for (int j = 0; j < V; ++j)
        if (Index(j) < left) out[j] = sum[p][j];
    }
  }
}

// The sum of one column over the `groups` partial rows. A block has 32 columns and kThreads / 32 threads a column;
// thread r of a column adds the rows r, r + kThreads / 32, ..., then the threads' sums are added in pairs.
template <int kThreads, class C>
AVO_INLINE C finish_column(const C *__restrict__ partials, int64_t groups, int64_t stride, int64_t column,
                           bool exists) {
  constexpr int kStep = kThreads / 32;
  __shared__ C shared[kStep][33];
  const int lane = int(threadIdx.x) % 32, own = int(threadIdx.x) / 32;
  C sum = C(0);
  if (exists) {
#pragma unroll 8
    for (int64_t g = own; g < groups; g += kStep) sum += partials[g * stride + column];
  }
  __syncthreads();
  shared[own][lane] = sum;
  __syncthreads();
  C total[kStep];
#pragma unroll
  for (int r = 0; r < kStep; ++r) total[r] = shared[r][lane];
#pragma unroll
  for (int pairs = kStep / 2; pairs > 0; pairs /= 2)
#pragma unroll
    for (int r = 0; r < kStep / 2; ++r)
      if (r < pairs) total[r] += total[r + pairs];
  return total[0];
}

} // namespace avo

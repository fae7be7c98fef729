// Reductions over the T threads of a row, in a tree that the map of the row fixes; every thread gets the result.
//
// kParts > 1: each vector of the map has a thread of its own, so that a call of few rows does not wait for one thread
// to treat several. What one thread of the map would have added up is added up first, in its order: the bits are the
// same.
#pragma once

#include "cluster.cuh"
#include "math.cuh"
#include "vector.cuh"

namespace avo {

struct Sum {
  template <class C> AVO_INLINE static C apply(C a, C b) { return a + b; }
};
struct Product {
  template <class C> AVO_INLINE static C apply(C a, C b) { return a * b; }
};
struct Max {
  template <class C> AVO_INLINE static C apply(C a, C b) { return m_max(a, b); }
  template <class X> AVO_INLINE static uint32_t apply_pairs(uint32_t a, uint32_t b) { return larger_of_pairs<X>(a, b); }
};
struct Min {
  template <class C> AVO_INLINE static C apply(C a, C b) { return m_min(a, b); }
  template <class X> AVO_INLINE static uint32_t apply_pairs(uint32_t a, uint32_t b) {
    return smaller_of_pairs<X>(a, b);
  }
};

// The extreme (Op: Max or Min) of the elements of a row operand that a thread holds, and of `value`, which is a number
// of X. Of 16 bits two at a time, by one instruction where four would widen and compare them.
template <class Op, class Tile, class X, int V, int P, class C>
AVO_INLINE void extreme(const Tile &tile, const Vec<X, V> (&v)[P], C &value) {
  if constexpr (sizeof(X) == 2 && V > 1) {
    uint32_t pair = pack_pair<X>(value, value);
#pragma unroll
    for (int p = 0; p < P; ++p) {
      const auto own = tile.left(p);
      if (Tile::kAligned ? tile.exists(p) : own >= V) {
#pragma unroll
        for (int i = 0; i < V / 2; ++i) pair = Op::template apply_pairs<X>(pair, v[p].w[i]);
      } else if (!Tile::kAligned && own > 0) {
#pragma unroll
        for (int j = 0; j < V - 1; ++j)
          if (j < own) value = Op::apply(value, v[p][j]);
      }
    }
    value = Op::apply(value, Op::apply(low_of_pair<X>(pair), high_of_pair<X>(pair)));
  } else {
    tile.each([&](int p, int j, bool) { value = Op::apply(value, v[p][j]); });
  }
}

// The sum of a thread's elements of a row: within a whole vector in pairs, pairs of pairs and so on, so that few
// roundings follow one another; then from vector to vector. Of two products that are added the second is not rounded
// before.
template <class C, int V> struct RowSum {
  C total = C(0);

  // Element j of a vector.
  AVO_INLINE void add(C value, int j, bool whole) {
    if (whole) join(value, j, 0);
    else total += value;
  }
  AVO_INLINE void add_product(C a, C b, int j, bool whole) {
    if (!whole || V == 1) total = m_fma(a, b, total);
    else if (j % 2) join(m_fma(a, b, waiting[0]), j, 1);
    else join(a * b, j, 0);
  }

private:
  C waiting[4] = {}; // the left one of each pair, pair of pairs, ...

  AVO_INLINE void join(C value, int j, int level) {
#pragma unroll
    for (int k = 0; (1 << k) < V; ++k) {
      if (k < level) continue;
      if ((j >> k) % 2 == 0) {
        waiting[k] = value;
        return;
      }
      value = waiting[k] + value;
    }
    total += value;
  }
};

// Shared memory for the reductions of rows that span several warps, or several blocks of a cluster (T > kBlock). Two
// buffers take turns, so that one barrier a reduction is enough: a thread writes a buffer again only after the barrier
// of the reduction in between.
template <class C, int kBlock, int T, int kMost, int kParts = 1> struct RowScratch {
  static constexpr int kWarps = T > 32 ? kBlock / 32 : 1;
  C value[2][kMost][kWarps];
  C block[2][kMost][kBlocksOfRow<T, kBlock>]; // each block's value, written by that block
  C part[2][kMost][kParts > 1 ? kBlock : 1];
};

template <int kWidth, class Op, class C> AVO_INLINE C butterfly(C v) {
#pragma unroll
  for (int offset = kWidth / 2; offset > 0; offset /= 2) v = Op::apply(v, __shfl_xor_sync(0xffffffffu, v, offset));
  return v;
}

// Reduce several values of each row at once.
template <class Op, int T, int kBlock, int kMost, int kParts, class C, class... Values>
AVO_INLINE void row_reduce(RowScratch<C, kBlock, T, kMost, kParts> &scratch, int &turn, Values &...values) {
  constexpr int kValues = int(sizeof...(Values)), kMap = T / kParts;
  C v[kValues] = {values...};
  if constexpr (kParts > 1) {
#pragma unroll
    for (int k = 0; k < kValues; ++k) scratch.part[turn][k][threadIdx.x] = v[k];
    __syncthreads();
    const int first = int(threadIdx.x) / T * T + int(threadIdx.x) % T % kMap;
#pragma unroll
    for (int k = 0; k < kValues; ++k) {
      v[k] = scratch.part[turn][k][first];
#pragma unroll
      for (int p = 1; p < kParts; ++p) v[k] = Op::apply(v[k], scratch.part[turn][k][first + p * kMap]);
    }
  }
#pragma unroll
  for (int k = 0; k < kValues; ++k) v[k] = butterfly<(kMap < 32 ? kMap : 32), Op>(v[k]);
  if constexpr (kMap > 32) {
    constexpr int kRowWarps = (kMap < kBlock ? kMap : kBlock) / 32;
    const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
    if (lane == 0) {
#pragma unroll
      for (int k = 0; k < kValues; ++k) scratch.value[turn][k][warp] = v[k];
    }
    __syncthreads();
    const int first = warp / kRowWarps * kRowWarps;
#pragma unroll
    for (int k = 0; k < kValues; ++k) v[k] = butterfly<kRowWarps, Op>(scratch.value[turn][k][first + lane % kRowWarps]);
    if constexpr (kBlocksOfRow<T, kBlock> > 1) {
      if (threadIdx.x < kBlocksOfRow<T, kBlock>) {
#pragma unroll
        for (int k = 0; k < kValues; ++k)
          store_in_cluster(&scratch.block[turn][k][cluster_rank()], int(threadIdx.x), v[k]);
      }
      cluster_barrier();
#pragma unroll
      for (int k = 0; k < kValues; ++k) {
        v[k] = scratch.block[turn][k][0];
#pragma unroll
        for (int r = 1; r < kBlocksOfRow<T, kBlock>; ++r) v[k] = Op::apply(v[k], scratch.block[turn][k][r]);
      }
    }
  }
  if constexpr (kMap > 32 || kParts > 1) turn ^= 1;
  int k = 0;
  ((values = v[k++]), ...);
}

} // namespace avo

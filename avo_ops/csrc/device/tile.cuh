// Which elements of a row a thread holds: the same map for the generic and the specialised kernel of a width.
#pragma once

#include "vector.cuh"

namespace avo {

// T threads share a row; vector p of thread t holds the columns [(p * T + t) * V, ... + V) of the tile. The map does
// not depend on addresses: rows that start between two 16-byte chunks are read by chunks and shifted into place. kN >
// 0: the number of columns is known at compile time, and every row and operand starts at a chunk. Index is int64_t
// where a row may have more than 2^31 columns.
template <int T, int P, int V, int kN, class Index = int> struct RowTile {
  static constexpr bool kExact = kN > 0 && kN == T * P * V;
  static constexpr int kSpan = T < 32 ? T : 32; // threads of a row in one warp

  int thread;  // in the row
  Index first; // column of the tile's first element
  Index columns;

  AVO_INLINE RowTile(int thread_of_row, Index first_column, int64_t n)
      : thread(thread_of_row), first(first_column), columns(kN > 0 ? Index(kN) : Index(n)) {}

  AVO_INLINE Index column(int p) const { return first + Index((p * T + thread) * V); }

  // How many elements there are from vector p on, so that element j exists if j < left(p). May be negative.
  AVO_INLINE Index left(int p) const {
    if constexpr (kExact) return V;
    return columns - column(p);
  }

  // Whether any thread of this warp has an element in vector p; the same for all of the warp.
  AVO_INLINE bool reaches(int p) const {
    if constexpr (kExact) return true;
    return first + Index((p * T + thread / kSpan * kSpan) * V) < columns;
  }

  // f(p, j) for every element that exists, in ascending order; without a test for each where all vectors are whole.
  template <class F> AVO_INLINE void each(const F &f) const {
    // With four elements in a vector or fewer, the tests cost nothing beside the bytes.
    if (kN > 0 || (V > 4 && columns % V == 0)) {
#pragma unroll
      for (int p = 0; p < P; ++p) {
        if (left(p) <= 0) continue;
#pragma unroll
        for (int j = 0; j < V; ++j) f(p, j);
      }
    } else {
#pragma unroll
      for (int p = 0; p < P; ++p) {
#pragma unroll
        for (int j = 0; j < V; ++j)
          if (Index(j) < left(p)) f(p, j);
      }
    }
  }

  // Load a row; elements that do not exist are unspecified. A chunk is read only if it holds an element of the row.
  template <class X> AVO_INLINE void load(Vec<X, V> (&v)[P], const X *__restrict__ row) const {
    const uint32_t offset = kN > 0 ? 0 : uint32_t(uint64_t(row)) & 15;
    const char *const base = reinterpret_cast<const char *>(row) - offset;
#pragma unroll
    for (int p = 0; p < P; ++p) v[p].load_chunks(chunk(base, p, sizeof(X)), left(p));
    if (kN == 0 && offset != 0) {
      constexpr int kBytes = V * int(sizeof(X));
      const Index beyond = V - int(offset) / int(sizeof(X)); // elements of a vector that its own chunks hold
      uint4 next[P];
#pragma unroll
      for (int p = 0; p < P; ++p)
        next[p] = left(p) > beyond ? load_chunk(chunk(base, p, sizeof(X)) + kBytes / 16) : make_uint4(0, 0, 0, 0);
#pragma unroll
      for (int p = 0; p < P; ++p) v[p].shift(next[p], offset);
    }
  }

  // Load vector p of a column operand, which starts at a chunk.
  template <class W> AVO_INLINE void load_columns(Vec<W, V> &v, int p, const W *__restrict__ operand) const {
    v.load_chunks(chunk(reinterpret_cast<const char *>(operand), p, sizeof(W)), left(p));
  }

  template <class W> AVO_INLINE void load_columns(Vec<W, V> (&v)[P], const W *__restrict__ operand) const {
#pragma unroll
    for (int p = 0; p < P; ++p) load_columns(v[p], p, operand);
  }

  // Store vector p of a row; every thread of the warp must call, `live` says whether the row exists.
  template <class X>
  AVO_INLINE void store(X *__restrict__ row, int p, const compute_t<X> (&value)[V], bool live) const {
    static_assert(V * sizeof(X) == 16, "results have the type of the row operands");
    Vec<X, V> v;
    v.pack(value);
    X *const out = row + column(p);
    const Index own = live ? left(p) : 0;
    if constexpr (kN > 0) {
      if (own > 0) v.store(out);
      return;
    }
    const uint32_t offset = uint32_t(uint64_t(out)) & 15;
    bool writes_chunk = own >= V, next_writes = false;
    int begins = V;
    // A row that starts `offset` bytes into a chunk: each thread writes the chunk made of the end of its neighbour's
    // vector and the beginning of its own. What lies at the ends of a warp's or of the row's span is written one by
    // one.
    if (__any_sync(0xffffffffu, offset != 0)) {
      uint32_t both[8];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        both[i] = __shfl_up_sync(0xffffffffu, v.w[i], 1, kSpan);
        both[4 + i] = v.w[i];
      }
      if (offset != 0) {
        begins = (16 - int(offset)) / int(sizeof(X)); // elements in the chunk that the previous thread's vector begins
        writes_chunk = thread % kSpan != 0 && own >= Index(begins);
        next_writes = thread % kSpan != kSpan - 1 && own - V >= Index(begins);
        shift_bytes<sizeof(X)>(both, 16 - offset);
        if (writes_chunk)
          *reinterpret_cast<uint4 *>(reinterpret_cast<char *>(out) - offset) =
              make_uint4(both[0], both[1], both[2], both[3]);
      }
    }
    if (offset == 0 && writes_chunk) v.store(out);
    if (own > 0 && !(writes_chunk && (next_writes || begins == V))) {
#pragma unroll
      for (int j = 0; j < V; ++j)
        if (Index(j) < own && !(j < begins ? writes_chunk : next_writes)) v.store_one(out, j);
    }
  }

private:
  AVO_INLINE const uint4 *chunk(const char *base, int p, int size) const {
    return reinterpret_cast<const uint4 *>(base + int64_t(column(p)) * size);
  }
};

// A tile that lies inside the row, whose rows all start at a chunk: nothing is tested.
template <int T, int P, int V, class Index = int> using WholeTile = RowTile<T, P, V, T * P * V, Index>;

// Whether rows at these addresses and strides (in elements of X) all start at a chunk.
template <class X> AVO_INLINE bool starts_at_chunk(const X *row, int64_t stride) {
  return ((uint64_t(row) | uint64_t(stride * int64_t(sizeof(X)))) & 15) == 0;
}

template <class X, int V, int P> AVO_INLINE void clear(Vec<X, V> (&v)[P]) {
#pragma unroll
  for (int p = 0; p < P; ++p) v[p].clear();
}

} // namespace avo

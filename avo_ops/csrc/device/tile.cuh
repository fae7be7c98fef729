// Which elements of a row a thread holds: the same map for the generic and the specialised kernel of a width.
#pragma once

#include "vector.cuh"

namespace avo {

// Whether rows at these addresses and strides (in elements of X) all start where vectors of V elements may.
template <int V, class X> AVO_INLINE bool starts_at_chunk(const X *row, int64_t stride) {
  constexpr int kBytes = V * int(sizeof(X)) < 16 ? V * int(sizeof(X)) : 16;
  return V == 1 || ((uint64_t(row) | uint64_t(stride * int64_t(sizeof(X)))) & (kBytes - 1)) == 0;
}

// Of numbers that are not negative; by 32 bits where they have no more, which takes a fifth of the instructions.
AVO_INLINE int quotient(int a, int b) { return int(uint32_t(a) / uint32_t(b)); }
AVO_INLINE int64_t quotient(int64_t a, int64_t b) {
  return (uint64_t(a | b) >> 32) == 0 ? int64_t(uint32_t(a) / uint32_t(b)) : a / b;
}

// T threads share a row; vector p of thread t holds the columns [(p * T + t) * V, ... + V) of the tile. The map does
// not depend on addresses: rows that start between two 16-byte chunks are read by chunks and shifted into place. kN >
// 0: the number of columns is known at compile time, and every row and operand starts at a chunk; kWholeChunks: that
// alone; kSingly: a vector is one element; 0: nothing. Index is int64_t where a row may have more than 2^31 columns.
template <int T, int P, int V, int kN, class Index = int> struct RowTile {
  static constexpr bool kExact = kN > 0 && kN == T * P * V;
  static constexpr bool kSingle = V == 1;
  static constexpr bool kAligned = kN != 0 || kSingle; // no vector begins between two of what is read at a time
  static constexpr int kSpan = T < 32 ? T : 32;        // threads of a row in one warp

  int thread;  // in the row
  Index first; // column of the tile's first element
  Index columns;

  AVO_INLINE RowTile(int thread_of_row, Index first_column, int64_t n)
      : thread(thread_of_row), first(first_column), columns(kN > 0 ? Index(kN) : Index(n)) {}

  // Sums of what differs between threads and a constant: addresses and tests then take one instruction each.
  AVO_INLINE Index column(int p) const { return first + Index(thread * V) + at(p, 0); }

  // For comparisons of the column of element j of vector p with an integer, in few bits and mostly constants: at(p, j)
  // is to place(c) as the column is to c.
  AVO_INLINE static constexpr Index at(int p, int j) { return Index(p * T * V + j); }
  AVO_INLINE Index place(int64_t c) const {
    const int64_t in_tile = c < int64_t(first) ? -1 : c - first;
    return Index(in_tile < T * P * V ? in_tile : T * P * V) - Index(thread * V);
  }

  // How many elements there are from vector p on, so that element j exists if j < left(p). May be negative.
  AVO_INLINE Index left(int p) const {
    if constexpr (kExact) return V;
    return columns - column(0) - at(p, 0);
  }

  AVO_INLINE bool exists(int p) const { return kExact || columns - column(0) > at(p, 0); }

  // Whether any thread of this warp has an element in vector p; the same for all of the warp.
  AVO_INLINE bool reaches(int p) const {
    if constexpr (kExact) return true;
    return columns - first - Index(thread / kSpan * kSpan * V) > at(p, 0);
  }

  // f(p, j, whole) for every element that exists, in ascending order; without a test for each where a vector is whole.
  template <class F> AVO_INLINE void each(const F &f) const {
#pragma unroll
    for (int p = 0; p < P; ++p) {
      const Index own = left(p);
      if (kAligned ? exists(p) : own >= V) {
#pragma unroll
        for (int j = 0; j < V; ++j) f(p, j, true);
      } else if (!kAligned && own > 0) {
#pragma unroll
        for (int j = 0; j < V - 1; ++j)
          if (Index(j) < own) f(p, j, false);
      }
    }
  }

  // Load a row; elements that do not exist are unspecified. A chunk is read only if it holds an element of the row.
  template <class X> AVO_INLINE void load(Vec<X, V> (&v)[P], const X *__restrict__ row) const {
    if constexpr (kSingle) load_columns(v, row);
    else if constexpr (kByElements<X>) load_by_elements(v, row);
    else load_anywhere(v, row);
  }

  // Load vector p of a column operand, which starts at a chunk.
  template <class W> AVO_INLINE void load_columns(Vec<W, V> &v, int p, const W *__restrict__ operand) const {
    if constexpr (kSingle) {
      if (exists(p)) v.load(operand + column(0) + at(p, 0));
      else v.clear();
    } else v.load_chunks(chunk(reinterpret_cast<const char *>(operand), p, sizeof(W)), left(p));
  }

  template <class W> AVO_INLINE void load_columns(Vec<W, V> (&v)[P], const W *__restrict__ operand) const {
#pragma unroll
    for (int p = 0; p < P; ++p) load_columns(v[p], p, operand);
  }

  // Load vector p of an operand that has a value for each run of `run` columns. A vector may reach over several runs.
  template <class W> AVO_INLINE void load_runs(Vec<W, V> &v, int p, const W *__restrict__ operand, int64_t run) const {
    const Index own = left(p) < V ? left(p) : Index(V), begin = column(p);
    if (own <= 0) return v.clear();
    Index index = quotient(begin, Index(run)), rest = Index(run) - (begin - index * Index(run));
    compute_t<W> value[V];
    if (rest >= own) {
      const compute_t<W> one = widen(operand[index]);
#pragma unroll
      for (int j = 0; j < V; ++j) value[j] = one;
    } else {
#pragma unroll
      for (int j = 0; j < V; ++j) {
        value[j] = Index(j) < own ? widen(operand[index]) : compute_t<W>(0);
        if (--rest == 0) {
          rest = Index(run);
          ++index;
        }
      }
    }
    v.pack(value);
  }

  template <class W> AVO_INLINE void load_runs(Vec<W, V> (&v)[P], const W *__restrict__ operand, int64_t run) const {
#pragma unroll
    for (int p = 0; p < P; ++p) load_runs(v[p], p, operand, run);
  }

  // Store vector p of a row; every thread of the warp must call, `live` says whether the row exists.
  template <class X, class C> AVO_INLINE void store(X *__restrict__ row, int p, const C (&value)[V], bool live) const {
    static_assert(kSingle || V * sizeof(X) == 16 || kByElements<X>,
                  "results have the type of the row operands, or 8 bits, or are integers");
    Vec<X, V> v;
    v.pack(value);
    X *const out = row + column(0) + at(p, 0);
    if constexpr (kAligned) {
      if (live && exists(p)) v.store(out);
    } else if constexpr (kByElements<X>) {
      const Index own = live ? left(p) : 0;
      if (own >= V && starts_at_chunk<V>(out, 0)) {
        v.store(out);
      } else {
#pragma unroll
        for (int j = 0; j < V; ++j)
          if (Index(j) < own) v.store_one(out, j);
      }
    } else {
      store_anywhere(out, live ? left(p) : 0, v);
    }
  }

private:
  // Elements of 8 bits and integers: a vector at once, or one by one where it does not start at a multiple of its size,
  // or is not whole.
  template <class X> AVO_INLINE void load_by_elements(Vec<X, V> (&v)[P], const X *__restrict__ row) const {
#pragma unroll
    for (int p = 0; p < P; ++p) {
      const X *const from = row + column(0) + at(p, 0);
      const Index own = left(p);
      if (own >= V && (kAligned || starts_at_chunk<V>(from, 0))) {
        v[p].load(from);
        continue;
      }
      v[p].clear();
#pragma unroll
      for (int j = 0; j < V; ++j)
        if (Index(j) < own) v[p].load_one(from, j);
    }
  }

  template <class X> AVO_INLINE void load_anywhere(Vec<X, V> (&v)[P], const X *__restrict__ row) const {
    const uint32_t offset = kAligned ? 0 : uint32_t(uint64_t(row)) & 15;
    const char *const base = reinterpret_cast<const char *>(row) - offset;
#pragma unroll
    for (int p = 0; p < P; ++p) v[p].load_chunks(chunk(base, p, sizeof(X)), left(p));
    if (!kAligned && offset != 0) {
      constexpr int kBytes = V * int(sizeof(X));
      const Index beyond = V - int(offset) / int(sizeof(X)); // elements of a vector that its own chunks hold
      uint4 next[P];
#pragma unroll
      for (int p = 0; p < P; ++p)
        next[p] = left(p) > beyond ? load_chunk(chunk(base, p, sizeof(X)) + kBytes / 16) : make_uint4(0, 0, 0, 0);
      with_word(offset, [&](auto word) {
#pragma unroll
        for (int p = 0; p < P; ++p) v[p].template shift<word.value>(next[p], offset);
      });
    }
  }

  template <class X> AVO_INLINE void store_anywhere(X *out, Index own, const Vec<X, V> &v) const {
    const uint32_t offset = uint32_t(uint64_t(out)) & 15;
    // A row that starts `offset` bytes into a chunk: each thread writes the chunk made of the end of its neighbour's
    // vector and the beginning of its own, but for what lies at the ends of a warp's or of the row's span.
    if (__any_sync(0xffffffffu, offset != 0)) {
      uint32_t both[8];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        both[i] = __shfl_up_sync(0xffffffffu, v.w[i], 1, kSpan);
        both[4 + i] = v.w[i];
      }
      if (offset != 0) store_between(out, offset, both, own, v);
    }
    if (offset == 0 && own >= V) v.store(out);
    if (offset == 0 && own > 0 && own < V) {
#pragma unroll
      for (int j = 0; j < V - 1; ++j)
        if (Index(j) < own) v.store_one(out, j);
    }
  }

  // Store a vector that starts `offset` bytes into a chunk; `both`: the neighbour's words and its own.
  template <class X>
  AVO_INLINE void store_between(X *out, uint32_t offset, const uint32_t (&both)[8], Index own,
                                const Vec<X, V> &v) const {
    const int begins = (16 - int(offset)) / int(sizeof(X)); // elements in the chunk that the neighbour's vector begins
    const bool head = own >= Index(begins), last = thread % kSpan == kSpan - 1 || own - V < Index(begins);
    char *const chunk = reinterpret_cast<char *>(out) - offset;
    with_word(16 - offset, [&](auto word) {
      constexpr int kFirst = 4 - word.value; // the first word of the chunk that has nothing of the neighbour
      uint32_t w[4];
      take_words<sizeof(X), word.value>(both, 16 - offset, w);
      if (head && thread % kSpan != 0) {
        *reinterpret_cast<uint4 *>(chunk) = make_uint4(w[0], w[1], w[2], w[3]);
      } else if (head) {
        if (sizeof(X) < 4 && offset % 4 != 0) reinterpret_cast<uint16_t *>(chunk)[2 * kFirst - 1] = w[kFirst - 1] >> 16;
#pragma unroll
        for (int i = kFirst; i < 4; ++i) reinterpret_cast<uint32_t *>(chunk)[i] = w[i];
      }
      if (own >= V && last) { // no thread writes the chunk that its vector begins
        uint32_t rest[kFirst];
        take_words<sizeof(X), 4 + word.value>(both, 16 - offset, rest);
#pragma unroll
        for (int i = 0; i < kFirst - 1; ++i) reinterpret_cast<uint32_t *>(chunk + 16)[i] = rest[i];
        if (sizeof(X) < 4 && offset % 4 != 0)
          reinterpret_cast<uint16_t *>(chunk + 16)[2 * kFirst - 2] = rest[kFirst - 1];
        else reinterpret_cast<uint32_t *>(chunk + 16)[kFirst - 1] = rest[kFirst - 1];
      }
    });
    if (own >= V) return;
#pragma unroll
    for (int j = 0; j < V - 1; ++j)
      if (Index(j) < own && !(head && j < begins)) v.store_one(out, j);
  }

  AVO_INLINE const uint4 *chunk(const char *base, int p, int size) const {
    return reinterpret_cast<const uint4 *>(base + int64_t(column(0)) * size + int64_t(at(p, 0)) * size);
  }
};

// A tile that lies inside the row, whose rows all start at a chunk: nothing is tested.
template <int T, int P, int V, class Index = int> using WholeTile = RowTile<T, P, V, T * P * V, Index>;

template <class X, int V, int P> AVO_INLINE void clear(Vec<X, V> (&v)[P]) {
#pragma unroll
  for (int p = 0; p < P; ++p) v[p].clear();
}
template <class First, class... More> AVO_INLINE void clear(First &v, More &...more) {
  clear(v);
  clear(more...);
}

// To the compiler the vectors are others from here on. Else, where nothing is tested between two passes over a row, it
// keeps all elements as float from one to the next, which takes twice the registers: more than there are, of many
// vectors.
template <class X, int V, int P> AVO_INLINE void hold_packed(Vec<X, V> (&v)[P]) {
#ifndef AVO_EMULATOR
  if constexpr (sizeof(X) == 2 && V > 1 && P > 4) {
#pragma unroll
    for (int p = 0; p < P; ++p)
#pragma unroll
      for (int i = 0; i < V / 2; ++i) asm volatile("" : "+r"(v[p].w[i]));
  }
#endif
}
template <class First, class... More> AVO_INLINE void hold_packed(First &v, More &...more) {
  hold_packed(v);
  hold_packed(more...);
}

template <class X, int V, int P> AVO_INLINE void copy(Vec<X, V> (&to)[P], const Vec<X, V> (&from)[P]) {
#pragma unroll
  for (int p = 0; p < P; ++p) to[p] = from[p];
}

} // namespace avo

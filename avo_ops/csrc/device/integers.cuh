// Integers: as operands and results beside wider or narrower elements, and in reductions of rows.
#pragma once

#ifndef AVO_EMULATOR
using int8_t = signed char;
using int16_t = short;
#endif

#include "reduce.cuh"
#include "tile.cuh"

namespace avo {

#define AVO_WHOLE AVO_INLINE
#include "../common/integers.h"
#undef AVO_WHOLE

template <int kBytes> struct ChunkOf {
  using type = uint4;
};
template <> struct ChunkOf<8> {
  using type = uint64_t;
};
template <> struct ChunkOf<4> {
  using type = uint32_t;
};
template <> struct ChunkOf<2> {
  using type = uint16_t;
};

// V integers of type T, moved 16 bytes at a time, or all at once where they have fewer.
template <class T, int V> struct Integers {
  static constexpr int kBytes = V * int(sizeof(T)), kWords = kBytes < 4 ? 1 : kBytes / 4;
  static constexpr int kPerWord = sizeof(T) < 4 ? 4 / int(sizeof(T)) : 1, kBits = 8 * int(sizeof(T));
  using Chunk = typename ChunkOf<kBytes>::type;
  uint32_t w[kWords];

  AVO_INLINE int64_t whole(int j) const {
    if constexpr (sizeof(T) == 8) return int64_t(uint64_t(w[2 * j + 1]) << 32 | w[2 * j]);
    else return T(w[j / kPerWord] >> (j % kPerWord * kBits));
  }
  AVO_INLINE void pack(const int64_t (&v)[V]) {
    clear();
#pragma unroll
    for (int j = 0; j < V; ++j) set(j, T(v[j]));
  }
  AVO_INLINE void clear() {
#pragma unroll
    for (int i = 0; i < kWords; ++i) w[i] = 0;
  }
  AVO_INLINE void load(const T *p) {
    if constexpr (kBytes >= 16) {
#pragma unroll
      for (int i = 0; i < kWords / 4; ++i) {
        const uint4 q = load_chunk(reinterpret_cast<const uint4 *>(p) + i);
        w[4 * i] = q.x, w[4 * i + 1] = q.y, w[4 * i + 2] = q.z, w[4 * i + 3] = q.w;
      }
    } else {
      const Chunk q = *reinterpret_cast<const Chunk *>(p);
      w[0] = uint32_t(q);
      if constexpr (kBytes == 8) w[1] = uint32_t(q >> 32);
    }
  }
  AVO_INLINE void store(T *p) const {
    if constexpr (kBytes >= 16) {
#pragma unroll
      for (int i = 0; i < kWords / 4; ++i)
        reinterpret_cast<uint4 *>(p)[i] = make_uint4(w[4 * i], w[4 * i + 1], w[4 * i + 2], w[4 * i + 3]);
    } else if constexpr (kBytes == 8) {
      *reinterpret_cast<Chunk *>(p) = uint64_t(w[1]) << 32 | w[0];
    } else {
      *reinterpret_cast<Chunk *>(p) = Chunk(w[0]);
    }
  }
  // Element j alone, of a vector that was cleared.
  AVO_INLINE void load_one(const T *p, int j) { set(j, p[j]); }
  AVO_INLINE void store_one(T *p, int j) const { p[j] = T(whole(j)); }

private:
  AVO_INLINE void set(int j, T value) {
    if constexpr (sizeof(T) == 8) {
      w[2 * j] = uint32_t(value), w[2 * j + 1] = uint32_t(uint64_t(value) >> 32);
    } else {
      constexpr uint32_t kMask = kBits == 32 ? 0xffffffffu : (1u << (kBits % 32)) - 1;
      w[j / kPerWord] |= (uint32_t(value) & kMask) << (j % kPerWord * kBits);
    }
  }
};

template <class T> struct Integers<T, 1> {
  T value;

  AVO_INLINE int64_t whole(int) const { return value; }
  AVO_INLINE void pack(const int64_t (&v)[1]) { value = T(v[0]); }
  AVO_INLINE void clear() { value = 0; }
  AVO_INLINE void load(const T *p) { value = *p; }
  AVO_INLINE void store(T *p) const { *p = value; }
};

#define AVO_INTEGERS(T)                                                                                                \
  template <> inline constexpr bool kByElements<T> = true;                                                             \
  template <int V> struct Vec<T, V> : Integers<T, V> {};                                                               \
  template <> struct Vec<T, 1> : Integers<T, 1> {};
AVO_INTEGERS(uint8_t)
AVO_INTEGERS(int8_t)
AVO_INTEGERS(int16_t)
AVO_INTEGERS(int32_t)
AVO_INTEGERS(int64_t)
#undef AVO_INTEGERS

struct WholeSum {
  AVO_INLINE static int64_t apply(int64_t a, int64_t b) { return m_iadd(a, b); }
};
struct WholeProduct {
  AVO_INLINE static int64_t apply(int64_t a, int64_t b) { return m_imul(a, b); }
};
struct WholeMax {
  AVO_INLINE static int64_t apply(int64_t a, int64_t b) { return m_imax(a, b); }
};
struct WholeMin {
  AVO_INLINE static int64_t apply(int64_t a, int64_t b) { return m_imin(a, b); }
};

} // namespace avo

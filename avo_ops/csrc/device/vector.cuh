// V consecutive elements in registers, moved 16 bytes at a time where the address allows.
#pragma once

#include "types.cuh"

namespace avo {

template <int k> struct Word {
  static constexpr int value = k;
};

// f(Word<k>), k being the word of a chunk in which the byte lies: one branch in place of a choice for every word moved.
template <class F> AVO_INLINE void with_word(uint32_t byte, const F &f) {
  switch (byte / 4) {
  case 0: f(Word<0>()); break;
  case 1: f(Word<1>()); break;
  case 2: f(Word<2>()); break;
  default: f(Word<3>()); break;
  }
}

// The words that begin at `byte`, a multiple of kUnit in word kWord of `in`.
template <int kUnit, int kWord, int kIn, int kOut>
AVO_INLINE void take_words(const uint32_t (&in)[kIn], uint32_t byte, uint32_t (&out)[kOut]) {
#pragma unroll
  for (int i = 0; i < kOut; ++i) {
    const uint32_t low = in[kWord + i];
    if constexpr (kUnit >= 4) out[i] = low;
    else out[i] = __funnelshift_r(low, kWord + i + 1 < kIn ? in[kWord + i + 1] : 0, byte % 4 * 8);
  }
}

#ifdef AVO_EMULATOR
AVO_INLINE uint4 load_chunk(const uint4 *p, AVO_SITE) { return emulator::load_chunk(p, {file, line}); }
#else
AVO_INLINE uint4 load_chunk(const uint4 *p) { return *p; }
#endif

template <class X, int V> struct Vec {
  static constexpr int kWords = V * int(sizeof(X)) / 4;
  static_assert(V * sizeof(X) % 16 == 0, "a logical vector is a whole number of 16-byte accesses");
  uint32_t w[kWords];

  // Element j; j must be a compile-time constant after unrolling, or the vector goes to local memory.
  AVO_INLINE compute_t<X> operator[](int j) const {
    if constexpr (sizeof(X) == 8) {
      return __hiloint2double(int(w[2 * j + 1]), int(w[2 * j]));
    } else if constexpr (sizeof(X) == 4) {
      return as_float(w[j]);
    } else {
      const uint32_t pair = w[j / 2];
      if constexpr (is_bfloat) return as_float(j % 2 ? pair & 0xffff0000u : pair << 16);
      return half_to_float(uint16_t(j % 2 ? pair >> 16 : pair));
    }
  }

  // All elements from values of the compute type, each rounded to nearest even.
  AVO_INLINE void pack(const compute_t<X> (&v)[V]) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      if constexpr (sizeof(X) == 8) {
        w[i] = uint32_t(i % 2 ? __double2hiint(v[i / 2]) : __double2loint(v[i / 2]));
      } else if constexpr (sizeof(X) == 4) {
        w[i] = as_bits(v[i]);
      } else if constexpr (is_bfloat) {
        w[i] = pack_bfloat(v[2 * i], v[2 * i + 1]);
      } else {
        w[i] = pack_half(v[2 * i], v[2 * i + 1]);
      }
    }
  }

  AVO_INLINE void clear() {
#pragma unroll
    for (int i = 0; i < kWords; ++i) w[i] = 0;
  }

  // Load 16-byte chunks; chunk i holds elements from i * (16 / size) on and is read only if that many are `left`.
  template <class Index> AVO_INLINE void load_chunks(const uint4 *chunk, Index left) {
#pragma unroll
    for (int i = 0; i < kWords / 4; ++i) {
      const uint4 q = left > Index(i * (16 / int(sizeof(X)))) ? load_chunk(chunk + i) : make_uint4(0, 0, 0, 0);
      w[4 * i] = q.x, w[4 * i + 1] = q.y, w[4 * i + 2] = q.z, w[4 * i + 3] = q.w;
    }
  }

  // Bring the element at byte `offset`, in word kWord, to the front; `next` is the chunk that follows.
  template <int kWord> AVO_INLINE void shift(uint4 next, uint32_t offset) {
    uint32_t in[kWords + 4];
#pragma unroll
    for (int i = 0; i < kWords; ++i) in[i] = w[i];
    in[kWords] = next.x, in[kWords + 1] = next.y, in[kWords + 2] = next.z, in[kWords + 3] = next.w;
    take_words<sizeof(X), kWord>(in, offset, w);
  }

  AVO_INLINE void store(X *p) const {
#pragma unroll
    for (int i = 0; i < kWords / 4; ++i)
      reinterpret_cast<uint4 *>(p)[i] = make_uint4(w[4 * i], w[4 * i + 1], w[4 * i + 2], w[4 * i + 3]);
  }

  // Store element j alone.
  AVO_INLINE void store_one(X *p, int j) const {
    if constexpr (sizeof(X) == 8) {
      p[j] = __hiloint2double(int(w[2 * j + 1]), int(w[2 * j]));
    } else if constexpr (sizeof(X) == 4) {
      p[j] = as_float(w[j]);
    } else {
      p[j].bits = uint16_t(j % 2 ? w[j / 2] >> 16 : w[j / 2]);
    }
  }

private:
  template <class A, class B> struct Same {
    static constexpr bool value = false;
  };
  template <class A> struct Same<A, A> {
    static constexpr bool value = true;
  };
  static constexpr bool is_bfloat = Same<X, bf16>::value;
};

// One element: what a thread holds at a time where rows are no whole number of chunks. Neighbours in a warp have
// neighbours in a row, so that any address will do.
template <class X> struct Vec<X, 1> {
  X value;

  AVO_INLINE compute_t<X> operator[](int) const { return widen(value); }
  AVO_INLINE void pack(const compute_t<X> (&v)[1]) { value = narrow<X>(v[0]); }
  AVO_INLINE void clear() { value = X(); }
  AVO_INLINE void load(const X *p) { value = *p; }
  AVO_INLINE void store(X *p) const { *p = value; }
};
// Of 16 bits, in a whole register: no instruction then keeps the upper half.
template <class X> struct Half {
  uint32_t bits;

  AVO_INLINE float operator[](int) const { return widen(X{uint16_t(bits)}); }
  AVO_INLINE void pack(const float (&v)[1]) { bits = narrow<X>(v[0]).bits; }
  AVO_INLINE void clear() { bits = 0; }
  AVO_INLINE void load(const X *p) { bits = p->bits; }
  AVO_INLINE void store(X *p) const { p->bits = uint16_t(bits); }
};
template <> struct Vec<f16, 1> : Half<f16> {};
template <> struct Vec<bf16, 1> : Half<bf16> {};

// V elements of 8 bits beside 16 bytes of wider ones: one access of V bytes, from an address that is a multiple of
// them.
template <int V> struct BytesOf;
template <> struct BytesOf<1> {
  using type = uint8_t;
};
template <> struct BytesOf<2> {
  using type = uint16_t;
};
template <> struct BytesOf<4> {
  using type = uint32_t;
};
template <> struct BytesOf<8> {
  using type = uint64_t;
};
template <class X, int V> struct Bytes {
  using Word = typename BytesOf<V>::type;
  Word word;

  AVO_INLINE float operator[](int j) const { return widen(X{uint8_t(word >> (8 * j))}); }
  template <class C> AVO_INLINE void pack(const C (&v)[V]) {
    word = 0;
#pragma unroll
    for (int j = 0; j < V; ++j) word = Word(word | Word(Word(narrow<X>(float(v[j])).bits) << (8 * j)));
  }
  AVO_INLINE void clear() { word = 0; }
  AVO_INLINE void load(const X *p) { word = *reinterpret_cast<const Word *>(p); }
  AVO_INLINE void store(X *p) const { *reinterpret_cast<Word *>(p) = word; }
  AVO_INLINE void load_one(const X *p, int j) { word = Word(word | Word(Word(p[j].bits) << (8 * j))); }
  AVO_INLINE void store_one(X *p, int j) const { p[j].bits = uint8_t(word >> (8 * j)); }
};
template <int V> struct Vec<f8, V> : Bytes<f8, V> {
  // Two at a time.
  template <class C> AVO_INLINE void pack(const C (&v)[V]) {
    using Word = typename Bytes<f8, V>::Word;
    this->word = 0;
#pragma unroll
    for (int j = 0; j < V; j += 2)
      this->word = Word(this->word | Word(Word(pack_e4m3(float(v[j]), float(v[j + 1]))) << (8 * j)));
  }
};
template <int V> struct Vec<i8, V> : Bytes<i8, V> {};
template <> struct Vec<f8, 1> : Bytes<f8, 1> {};
template <> struct Vec<i8, 1> : Bytes<i8, 1> {};

// Whether the vectors of a type, which need not be 16 bytes, are moved at once or element by element.
template <class X> inline constexpr bool kByElements = sizeof(X) == 1;

// What a kernel knows of the number of columns, in place of the number: that rows are whole chunks, and start at one;
// or that they are not, and are treated an element at a time.
constexpr int kWholeChunks = -1, kSingly = -2;

// The number of elements of X in a logical vector of a kernel: 16 bytes of its row operands, or one.
template <class X, int kN = 0> constexpr int kVector = kN == kSingly ? 1 : 16 / int(sizeof(X));

} // namespace avo

// Logical vectors of 16 lanes, float and double, on the registers of the instruction set being compiled for.
//
// Everything here has internal linkage (the unnamed namespace): an object for a newer machine must not lend a
// weak symbol to an older one. Only intrinsics and compiler builtins are used. Lane-wise arithmetic is IEEE
// and equal on every instruction set; m_fma is fused where the hardware has it and a multiplication and an
// addition elsewhere.
#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#ifndef AVO_ISA_NAMESPACE
#error "define AVO_ISA_NAMESPACE (avo_base, avo_v3, avo_v4): each object has its own namespace"
#endif

#define AVO_INLINE inline __attribute__((always_inline))
#define AVO_NOINLINE __attribute__((noinline))
// Defined once in a library, for all its objects of one instruction set.
#define AVO_ONCE __attribute__((visibility("hidden"), noinline))
#define AVO_LAMBDA __attribute__((always_inline))
// A kernel: internal, and everything in it inlined whatever its size (sums live in registers only then).
#define AVO_KERNEL static __attribute__((flatten))
// See AvoCpuKernel.
#define AVO_PARAMETERS                                                                                                 \
  [[maybe_unused]] const AvoCpuArgs *a, [[maybe_unused]] int64_t row_begin, [[maybe_unused]] int64_t row_end,          \
      [[maybe_unused]] int64_t col_begin, [[maybe_unused]] int64_t col_end, [[maybe_unused]] int64_t chunk,            \
      [[maybe_unused]] void *scratch

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#define AVO_AVX512 1
#define AVO_REGISTER_BYTES 64
#define AVO_ISA_SUFFIX_DEFAULT v4
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define AVO_AVX2 1
#define AVO_REGISTER_BYTES 32
#define AVO_ISA_SUFFIX_DEFAULT v3
#else
#define AVO_REGISTER_BYTES 16
#define AVO_ISA_SUFFIX_DEFAULT base
#endif
#ifndef AVO_ISA_SUFFIX
#define AVO_ISA_SUFFIX AVO_ISA_SUFFIX_DEFAULT
#endif
#define AVO_PASTE_NOW(a, b) a##b
#define AVO_PASTE(a, b) AVO_PASTE_NOW(a, b)

namespace AVO_ISA_NAMESPACE {
namespace {

constexpr int kLanes = 16;

typedef float RegF __attribute__((vector_size(AVO_REGISTER_BYTES)));
typedef double RegD __attribute__((vector_size(AVO_REGISTER_BYTES)));
typedef int32_t IntF __attribute__((vector_size(AVO_REGISTER_BYTES)));
typedef int64_t IntD __attribute__((vector_size(AVO_REGISTER_BYTES)));
typedef uint32_t UintF __attribute__((vector_size(AVO_REGISTER_BYTES)));
typedef uint64_t UintD __attribute__((vector_size(AVO_REGISTER_BYTES)));
typedef RegF LooseF __attribute__((aligned(4), may_alias));
typedef RegD LooseD __attribute__((aligned(8), may_alias));

// The types that belong to a compute type C.
template <class C> struct Types;
template <> struct Types<float> {
  using Reg = RegF;
  using Int = IntF;
  using Uint = UintF;
  using Loose = LooseF;
  using Word = uint32_t;
};
template <> struct Types<double> {
  using Reg = RegD;
  using Int = IntD;
  using Uint = UintD;
  using Loose = LooseD;
  using Word = uint64_t;
};
template <class R> struct LaneOf;
template <> struct LaneOf<RegF> {
  using type = float;
};
template <> struct LaneOf<RegD> {
  using type = double;
};

// ---- one register -------------------------------------------------------------------------------

#if AVO_AVX512
#define AVO_BY_ISA(v4, v3, base) v4
#elif AVO_AVX2
#define AVO_BY_ISA(v4, v3, base) v3
#else
#define AVO_BY_ISA(v4, v3, base) base
#endif

#if AVO_AVX512
// The unmasked intrinsics of g++ 12 read an uninitialised variable, and it warns of that; these are the same
// instructions.
AVO_INLINE __m512 all_sqrt_ps(__m512 x) { return _mm512_maskz_sqrt_ps(__mmask16(-1), x); }
AVO_INLINE __m512d all_sqrt_pd(__m512d x) { return _mm512_maskz_sqrt_pd(__mmask8(-1), x); }
AVO_INLINE __m512 all_min_ps(__m512 a, __m512 b) { return _mm512_maskz_min_ps(__mmask16(-1), a, b); }
AVO_INLINE __m512d all_min_pd(__m512d a, __m512d b) { return _mm512_maskz_min_pd(__mmask8(-1), a, b); }
AVO_INLINE __m512 all_max_ps(__m512 a, __m512 b) { return _mm512_maskz_max_ps(__mmask16(-1), a, b); }
AVO_INLINE __m512d all_max_pd(__m512d a, __m512d b) { return _mm512_maskz_max_pd(__mmask8(-1), a, b); }
#endif

AVO_INLINE RegF splat(float x) { return (RegF)AVO_BY_ISA(_mm512_set1_ps, _mm256_set1_ps, _mm_set1_ps)(x); }
AVO_INLINE RegD splat(double x) { return (RegD)AVO_BY_ISA(_mm512_set1_pd, _mm256_set1_pd, _mm_set1_pd)(x); }
AVO_INLINE IntF splat(int32_t x) { return (IntF)AVO_BY_ISA(_mm512_set1_epi32, _mm256_set1_epi32, _mm_set1_epi32)(x); }
AVO_INLINE IntD splat(int64_t x) { return (IntD)AVO_BY_ISA(_mm512_set1_epi64, _mm256_set1_epi64x, _mm_set1_epi64x)(x); }
AVO_INLINE RegF r_sqrt(RegF x) { return AVO_BY_ISA(all_sqrt_ps, _mm256_sqrt_ps, _mm_sqrt_ps)(x); }
AVO_INLINE RegD r_sqrt(RegD x) { return AVO_BY_ISA(all_sqrt_pd, _mm256_sqrt_pd, _mm_sqrt_pd)(x); }
// a < b ? a : b and a > b ? a : b: the second operand where either is NaN.
AVO_INLINE RegF r_min(RegF a, RegF b) { return AVO_BY_ISA(all_min_ps, _mm256_min_ps, _mm_min_ps)(a, b); }
AVO_INLINE RegD r_min(RegD a, RegD b) { return AVO_BY_ISA(all_min_pd, _mm256_min_pd, _mm_min_pd)(a, b); }
AVO_INLINE RegF r_max(RegF a, RegF b) { return AVO_BY_ISA(all_max_ps, _mm256_max_ps, _mm_max_ps)(a, b); }
AVO_INLINE RegD r_max(RegD a, RegD b) { return AVO_BY_ISA(all_max_pd, _mm256_max_pd, _mm_max_pd)(a, b); }

#if AVO_AVX512 || AVO_AVX2
#define AVO_HAS_FMA 1
AVO_INLINE RegF r_fma(RegF a, RegF b, RegF c) { return AVO_BY_ISA(_mm512_fmadd_ps, _mm256_fmadd_ps, )(a, b, c); }
AVO_INLINE RegD r_fma(RegD a, RegD b, RegD c) { return AVO_BY_ISA(_mm512_fmadd_pd, _mm256_fmadd_pd, )(a, b, c); }
#else
#define AVO_HAS_FMA 0
AVO_INLINE RegF r_fma(RegF a, RegF b, RegF c) { return a * b + c; }
AVO_INLINE RegD r_fma(RegD a, RegD b, RegD c) { return a * b + c; }
#endif

template <class R> using IntOf = typename Types<typename LaneOf<R>::type>::Int;
template <class R> using UintOf = typename Types<typename LaneOf<R>::type>::Uint;

// A mask with only the sign bit of each lane.
template <class R> AVO_INLINE UintOf<R> sign_bit() {
  using Word = typename Types<typename LaneOf<R>::type>::Word;
  return UintOf<R>{} + (Word(1) << (8 * sizeof(Word) - 1));
}
template <class R> AVO_INLINE R r_abs(R x) { return (R)((UintOf<R>)x & ~sign_bit<R>()); }
template <class R> AVO_INLINE R r_neg(R x) { return (R)((UintOf<R>)x ^ sign_bit<R>()); }
// The magnitude of `size` (not negative) with the sign of `sign`.
template <class R> AVO_INLINE R r_with_sign(R size, R sign) {
  return (R)((UintOf<R>)size | ((UintOf<R>)sign & sign_bit<R>()));
}

#if AVO_AVX512
constexpr int kDown = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC;
AVO_INLINE RegF r_floor(RegF x) { return _mm512_maskz_roundscale_ps(__mmask16(-1), x, kDown); }
AVO_INLINE RegD r_floor(RegD x) { return _mm512_maskz_roundscale_pd(__mmask8(-1), x, kDown); }
constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
AVO_INLINE RegF r_round(RegF x) { return _mm512_maskz_roundscale_ps(__mmask16(-1), x, kNearest); }
AVO_INLINE RegD r_round(RegD x) { return _mm512_maskz_roundscale_pd(__mmask8(-1), x, kNearest); }
#elif AVO_AVX2
AVO_INLINE RegF r_floor(RegF x) { return _mm256_floor_ps(x); }
AVO_INLINE RegD r_floor(RegD x) { return _mm256_floor_pd(x); }
constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
AVO_INLINE RegF r_round(RegF x) { return _mm256_round_ps(x, kNearest); }
AVO_INLINE RegD r_round(RegD x) { return _mm256_round_pd(x, kNearest); }
#else
// By adding 2^23 (2^52); larger numbers are whole (or NaN).
template <class R> AVO_INLINE R r_round(R x) {
  using C = typename LaneOf<R>::type;
  const R whole = splat(C(sizeof(C) == 4 ? 0x1p23 : 0x1p52)), size = r_abs(x);
  return size < whole ? r_with_sign((size + whole) - whole, x) : x;
}
// One less than to nearest where that went up.
template <class R> AVO_INLINE R r_floor(R x) {
  using C = typename LaneOf<R>::type;
  const R near = r_round(x), down = near - splat(C(1));
  return near > x ? r_with_sign(r_abs(down), x) : near;
}
#endif

// ---- all registers of a logical vector ----------------------------------------------------------

template <int I> struct Index {
  constexpr operator int() const { return I; }
};
template <int... I> struct Indices {};
template <class F, int... I> AVO_INLINE void call_each(const F &f, Indices<I...>) { (f(Index<I>{}), ...); }
// f(Index<0>{}), ..., f(Index<Count - 1>{}): unrolled from the outset, so that arrays of registers stay in
// registers.
template <int Count, class F> AVO_INLINE void repeat(const F &f) { call_each(f, Indices<__integer_pack(Count)...>{}); }

template <class C> struct Mask {
  static constexpr int kRegs = kLanes * int(sizeof(C)) / AVO_REGISTER_BYTES;
  typename Types<C>::Int r[kRegs];

  Mask() = default;
  AVO_INLINE Mask(bool all) {
    using Lane = decltype(r[0][0] + 0);
    repeat<kRegs>([&](auto i) AVO_LAMBDA { r[i] = typename Types<C>::Int{} - Lane(all); });
  }
#define AVO_MASK_OPERATOR(name, expression)                                                                            \
  friend AVO_INLINE Mask name(Mask a, Mask b) {                                                                        \
    Mask out;                                                                                                          \
    repeat<kRegs>([&](auto i) AVO_LAMBDA { out.r[i] = a.r[i] expression b.r[i]; });                                    \
    return out;                                                                                                        \
  }
  AVO_MASK_OPERATOR(m_and, &)
  AVO_MASK_OPERATOR(m_or, |)
#undef AVO_MASK_OPERATOR
  friend AVO_INLINE Mask m_not(Mask a) {
    repeat<kRegs>([&](auto i) AVO_LAMBDA { a.r[i] = ~a.r[i]; });
    return a;
  }
};

template <class C> struct Vec {
  using Reg = typename Types<C>::Reg;
  using Lane = C;
  static constexpr int kPerReg = AVO_REGISTER_BYTES / int(sizeof(C));
  static constexpr int kRegs = kLanes / kPerReg;
  Reg r[kRegs];

  Vec() = default;
  AVO_INLINE Vec(C x) {
    repeat<kRegs>([&](auto i) AVO_LAMBDA { r[i] = splat(x); });
  }
  static AVO_INLINE Vec load(const C *p) {
    Vec out;
    repeat<kRegs>([&](auto i) AVO_LAMBDA { out.r[i] = *(const typename Types<C>::Loose *)(p + i * kPerReg); });
    return out;
  }
  AVO_INLINE void store(C *p) const {
    repeat<kRegs>([&](auto i) AVO_LAMBDA { *(typename Types<C>::Loose *)(p + i * kPerReg) = r[i]; });
  }

#define AVO_VEC_OPERATOR(name, expression, result)                                                                     \
  friend AVO_INLINE result name(Vec a, Vec b) {                                                                        \
    result out;                                                                                                        \
    repeat<kRegs>([&](auto i) AVO_LAMBDA { out.r[i] = a.r[i] expression b.r[i]; });                                    \
    return out;                                                                                                        \
  }
  AVO_VEC_OPERATOR(operator+, +, Vec)
  AVO_VEC_OPERATOR(operator-, -, Vec)
  AVO_VEC_OPERATOR(operator*, *, Vec)
  AVO_VEC_OPERATOR(operator/, /, Vec)
  AVO_VEC_OPERATOR(m_lt, <, Mask<C>)
  AVO_VEC_OPERATOR(m_le, <=, Mask<C>)
  AVO_VEC_OPERATOR(m_gt, >, Mask<C>)
  AVO_VEC_OPERATOR(m_ge, >=, Mask<C>)
  AVO_VEC_OPERATOR(m_eq, ==, Mask<C>)
  AVO_VEC_OPERATOR(m_ne, !=, Mask<C>)
#undef AVO_VEC_OPERATOR
  friend AVO_INLINE Vec operator-(Vec a) {
    repeat<kRegs>([&](auto i) AVO_LAMBDA { a.r[i] = r_neg(a.r[i]); });
    return a;
  }
  friend AVO_INLINE Vec m_where(Mask<C> mask, Vec a, Vec b) {
    repeat<kRegs>([&](auto i) AVO_LAMBDA { b.r[i] = mask.r[i] ? a.r[i] : b.r[i]; });
    return b;
  }
};

// The scalar twins: one value a row.
#define AVO_SCALAR_COMPARISON(name, expression)                                                                        \
  AVO_INLINE bool name(float a, float b) { return a expression b; }                                                    \
  AVO_INLINE bool name(double a, double b) { return a expression b; }
AVO_SCALAR_COMPARISON(m_lt, <)
AVO_SCALAR_COMPARISON(m_le, <=)
AVO_SCALAR_COMPARISON(m_gt, >)
AVO_SCALAR_COMPARISON(m_ge, >=)
AVO_SCALAR_COMPARISON(m_eq, ==)
AVO_SCALAR_COMPARISON(m_ne, !=)
#undef AVO_SCALAR_COMPARISON
AVO_INLINE bool m_and(bool a, bool b) { return a & b; }
AVO_INLINE bool m_or(bool a, bool b) { return a | b; }
AVO_INLINE bool m_not(bool a) { return !a; }
AVO_INLINE float m_where(bool mask, float a, float b) { return mask ? a : b; }
AVO_INLINE double m_where(bool mask, double a, double b) { return mask ? a : b; }

// f on the registers of `a`, one after the other: out-of-order execution overlaps them, and few are live at
// once.
template <class C, class F, class... V> AVO_INLINE Vec<C> each(const F &f, const V &...v) {
  Vec<C> out;
  repeat<Vec<C>::kRegs>([&](auto i) AVO_LAMBDA { out.r[i] = f(v.r[i]...); });
  return out;
}

// NaN if either is NaN, as torch.maximum; b where they are equal. Registers and scalars alike.
template <class T> AVO_INLINE T keep_larger(T a, T b) { return ((a > b) | (a != a)) ? a : b; }
template <class T> AVO_INLINE T keep_smaller(T a, T b) { return ((a < b) | (a != a)) ? a : b; }
AVO_INLINE RegF keep_larger(RegF a, RegF b) { return a != a ? a : r_max(a, b); }
AVO_INLINE RegD keep_larger(RegD a, RegD b) { return a != a ? a : r_max(a, b); }
AVO_INLINE RegF keep_smaller(RegF a, RegF b) { return a != a ? a : r_min(a, b); }
AVO_INLINE RegD keep_smaller(RegD a, RegD b) { return a != a ? a : r_min(a, b); }

// ---- reductions across lanes --------------------------------------------------------------------

// Lane i with lane i + 8, then + 4, + 2, + 1: one tree on every instruction set.
template <class C, class Op> AVO_INLINE C across(Vec<C> v, const Op &op) {
  typedef C Quad __attribute__((vector_size(16)));
  constexpr int per_quad = 16 / int(sizeof(C)), quads = kLanes / per_quad;
  Quad q[quads];
  __builtin_memcpy(q, v.r, sizeof(q));
  if constexpr (quads == 8) {
    repeat<4>([&](auto i) AVO_LAMBDA { q[i] = op(q[i], q[i + 4]); });
  }
  repeat<2>([&](auto i) AVO_LAMBDA { q[i] = op(q[i], q[i + 2]); });
  const Quad last = op(q[0], q[1]);
  if constexpr (per_quad == 4) {
    const C low = op(C(last[0]), C(last[2])), high = op(C(last[1]), C(last[3]));
    return op(low, high);
  } else {
    return op(C(last[0]), C(last[1]));
  }
}
template <class C> AVO_INLINE C hsum(Vec<C> v) {
  return across(v, [](auto a, auto b) AVO_LAMBDA { return a + b; });
}
template <class C> AVO_INLINE C hprod(Vec<C> v) {
  return across(v, [](auto a, auto b) AVO_LAMBDA { return a * b; });
}
template <class C> AVO_INLINE C hamax(Vec<C> v) {
  return across(v, [](auto a, auto b) AVO_LAMBDA { return keep_larger(a, b); });
}
template <class C> AVO_INLINE C hamin(Vec<C> v) {
  return across(v, [](auto a, auto b) AVO_LAMBDA { return keep_smaller(a, b); });
}

// ---- the lanes of a row -------------------------------------------------------------------------

// 16 lanes, all of them.
struct Whole {
  template <class C> static AVO_INLINE Vec<C> load(const C *p) { return Vec<C>::load(p); }
  template <class C> static AVO_INLINE void store(C *p, Vec<C> v) { v.store(p); }
  template <class C> static AVO_INLINE Vec<C> sum(Vec<C> sums, Vec<C> v) { return sums + v; }
  template <class C> static AVO_INLINE Vec<C> sum(Vec<C> sums, Vec<C> a, Vec<C> b) { return m_fma(a, b, sums); }
  template <class C> static AVO_INLINE Vec<C> prod(Vec<C> product, Vec<C> v) { return product * v; }
  template <class C> static AVO_INLINE Vec<C> amax(Vec<C> most, Vec<C> v) {
    return each<C>([](auto a, auto b) AVO_LAMBDA { return keep_larger(a, b); }, most, v);
  }
  template <class C> static AVO_INLINE Vec<C> amin(Vec<C> least, Vec<C> v) {
    return each<C>([](auto a, auto b) AVO_LAMBDA { return keep_smaller(a, b); }, least, v);
  }
};

// The first n of 16 lanes, 0 < n < 16: others are loaded as zero, never stored and never reduced.
struct Tail {
  int n;

  template <class C> AVO_INLINE Mask<C> mask() const {
    Mask<C> out;
    typename Types<C>::Int lane;
    repeat<Vec<C>::kPerReg>([&](auto i) AVO_LAMBDA { lane[int(i)] = int(i); });
    using Word = decltype(lane[0] + 0);
    repeat<Vec<C>::kRegs>([&](auto i) AVO_LAMBDA { out.r[i] = lane < splat(Word(n - i * Vec<C>::kPerReg)); });
    return out;
  }
  template <class C> AVO_INLINE Vec<C> load(const C *p) const;
  template <class C> AVO_INLINE void store(C *p, Vec<C> v) const;
  template <class C> AVO_INLINE Vec<C> sum(Vec<C> sums, Vec<C> v) const { return m_where(mask<C>(), sums + v, sums); }
  template <class C> AVO_INLINE Vec<C> sum(Vec<C> sums, Vec<C> a, Vec<C> b) const {
    return m_where(mask<C>(), m_fma(a, b, sums), sums);
  }
  template <class C> AVO_INLINE Vec<C> prod(Vec<C> product, Vec<C> v) const {
    return m_where(mask<C>(), product * v, product);
  }
  template <class C> AVO_INLINE Vec<C> amax(Vec<C> most, Vec<C> v) const {
    return m_where(mask<C>(), Whole::amax(most, v), most);
  }
  template <class C> AVO_INLINE Vec<C> amin(Vec<C> least, Vec<C> v) const {
    return m_where(mask<C>(), Whole::amin(least, v), least);
  }
};

#if AVO_AVX512
AVO_INLINE RegF load_lanes(const float *p, uint32_t bits) { return _mm512_maskz_loadu_ps(__mmask16(bits), p); }
AVO_INLINE RegD load_lanes(const double *p, uint32_t bits) { return _mm512_maskz_loadu_pd(__mmask8(bits), p); }
AVO_INLINE void store_lanes(float *p, uint32_t bits, RegF v) { _mm512_mask_storeu_ps(p, __mmask16(bits), v); }
AVO_INLINE void store_lanes(double *p, uint32_t bits, RegD v) { _mm512_mask_storeu_pd(p, __mmask8(bits), v); }
template <class C> AVO_INLINE Vec<C> Tail::load(const C *p) const {
  Vec<C> out;
  const uint32_t bits = (1u << n) - 1;
  repeat<Vec<C>::kRegs>([&](auto i) AVO_LAMBDA {
    constexpr int first = i * Vec<C>::kPerReg;
    out.r[i] = load_lanes(p + first, bits >> first);
  });
  return out;
}
template <class C> AVO_INLINE void Tail::store(C *p, Vec<C> v) const {
  const uint32_t bits = (1u << n) - 1;
  repeat<Vec<C>::kRegs>([&](auto i) AVO_LAMBDA {
    constexpr int first = i * Vec<C>::kPerReg;
    store_lanes(p + first, bits >> first, v.r[i]);
  });
}
#elif AVO_AVX2
AVO_INLINE RegF load_lanes(const float *p, IntF mask) { return _mm256_maskload_ps(p, (__m256i)mask); }
AVO_INLINE RegD load_lanes(const double *p, IntD mask) { return _mm256_maskload_pd(p, (__m256i)mask); }
AVO_INLINE void store_lanes(float *p, IntF mask, RegF v) { _mm256_maskstore_ps(p, (__m256i)mask, v); }
AVO_INLINE void store_lanes(double *p, IntD mask, RegD v) { _mm256_maskstore_pd(p, (__m256i)mask, v); }
template <class C> AVO_INLINE Vec<C> Tail::load(const C *p) const {
  Vec<C> out;
  const Mask<C> lanes = mask<C>();
  repeat<Vec<C>::kRegs>([&](auto i) AVO_LAMBDA { out.r[i] = load_lanes(p + i * Vec<C>::kPerReg, lanes.r[i]); });
  return out;
}
template <class C> AVO_INLINE void Tail::store(C *p, Vec<C> v) const {
  const Mask<C> lanes = mask<C>();
  repeat<Vec<C>::kRegs>([&](auto i) AVO_LAMBDA { store_lanes(p + i * Vec<C>::kPerReg, lanes.r[i], v.r[i]); });
}
#else
template <class C> AVO_INLINE Vec<C> Tail::load(const C *p) const {
  C lanes[kLanes] = {};
  __builtin_memcpy(lanes, p, size_t(n) * sizeof(C));
  return Vec<C>::load(lanes);
}
template <class C> AVO_INLINE void Tail::store(C *p, Vec<C> v) const {
  C lanes[kLanes];
  v.store(lanes);
  __builtin_memcpy(p, lanes, size_t(n) * sizeof(C));
}
#endif

// Columns of a row that are summed by themselves before they are added to the sum of the row.
constexpr int64_t kSumBlock = 256;
AVO_INLINE int64_t block_end(int64_t begin, int64_t end) { return end - begin < kSumBlock ? end : begin + kSumBlock; }

// c, c + 1, ... + 15.
template <class C> AVO_INLINE Vec<C> numbers_from(int64_t c) {
  Vec<C> out;
  repeat<Vec<C>::kRegs>([&](auto r) AVO_LAMBDA {
    repeat<Vec<C>::kPerReg>([&](auto i) AVO_LAMBDA { out.r[r][int(i)] = C(r * Vec<C>::kPerReg + i); });
  });
  return out + Vec<C>(C(c));
}

// f(c, Whole) for each full vector of columns [begin, end), then f(c, Tail) for what is left.
template <class C, class F> AVO_INLINE void sweep(int64_t begin, int64_t end, const F &f) {
  int64_t c = begin;
  for (; c + kLanes <= end; c += kLanes) f(c, Whole{});
  if (c < end) f(c, Tail{int(end - c)});
}
// The same with f(c, part, chain): the vectors of a pair have chains of their own, Index<0> and Index<1>.
template <class C, class F> AVO_INLINE void sweep_pairs(int64_t begin, int64_t end, const F &f) {
  int64_t c = begin;
  for (; c + 2 * kLanes <= end; c += 2 * kLanes) {
    f(c, Whole{}, Index<0>{});
    f(c + kLanes, Whole{}, Index<1>{});
  }
  if (c + kLanes <= end) {
    f(c, Whole{}, Index<0>{});
    c += kLanes;
  }
  if (c < end) f(c, Tail{int(end - c)}, Index<1>{});
}

} // namespace
} // namespace AVO_ISA_NAMESPACE

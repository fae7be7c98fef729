// Element types and their conversions. Everything here works under NVRTC without any header of CUDA's.
#pragma once

#ifdef AVO_EMULATOR
#include "../emulator/cuda.h"
#else
using int32_t = int;
using uint32_t = unsigned int;
using uint16_t = unsigned short;
using uint8_t = unsigned char;
using int64_t = long long;
using uint64_t = unsigned long long;
#endif

#include "math.cuh"

#define AVO_INLINE __device__ __forceinline__

// Dynamic shared memory, as much as the launch asks for; the one way to get it.
#ifdef AVO_EMULATOR
#define AVO_DYNAMIC_SHARED(T, name) T *const name = static_cast<T *>(::avo::emulator::engine().dynamic_shared())
#else
#define AVO_DYNAMIC_SHARED(T, name)                                                                                    \
  extern __shared__ uint4 avo_dynamic_shared[];                                                                        \
  T *const name = reinterpret_cast<T *>(avo_dynamic_shared)
#endif

namespace avo {

using f32 = float;
using f64 = double;
// The 16-bit types are storage only: all math is in float.
struct f16 {
  uint16_t bits;
};
struct bf16 {
  uint16_t bits;
};

// So are those of 8 bits, operands beside wider ones: e4m3 (4 bits of exponent, 3 of the fraction, no infinity),
// integers.
struct f8 {
  uint8_t bits;
};
struct i8 {
  uint8_t bits;
};

// The type of the math for an element type: float, or double for double.
template <class X> struct Compute {
  using type = float;
};
template <> struct Compute<double> {
  using type = double;
};
template <class X> using compute_t = typename Compute<X>::type;

// How accurate the elementary functions must be for results of type X, and of type W where they are summed over rows.
template <class X> struct Accuracy {
  using type = Fine;
};
template <> struct Accuracy<f16> {
  using type = Coarse;
};
template <> struct Accuracy<bf16> {
  using type = Rough;
};
template <class A, class B> struct MoreAccurate {
  using type = Fine;
};
template <class A> struct MoreAccurate<A, A> {
  using type = A;
};
template <> struct MoreAccurate<Coarse, Rough> {
  using type = Coarse;
};
template <> struct MoreAccurate<Rough, Coarse> {
  using type = Coarse;
};
template <class X, class W = X>
using accuracy_t = typename MoreAccurate<typename Accuracy<X>::type, typename Accuracy<W>::type>::type;

AVO_INLINE uint32_t as_bits(float v) { return __float_as_uint(v); }
AVO_INLINE float as_float(uint32_t v) { return __uint_as_float(v); }

#ifdef AVO_EMULATOR
AVO_INLINE float half_to_float(uint16_t h) { return emulator::half_to_float(h); }
AVO_INLINE uint32_t pack_half(float lo, float hi) {
  return uint32_t(emulator::to_half(hi)) << 16 | emulator::to_half(lo);
}
AVO_INLINE uint32_t pack_bfloat(float lo, float hi) {
  return uint32_t(emulator::to_bfloat(hi)) << 16 | emulator::to_bfloat(lo);
}
#else
AVO_INLINE float half_to_float(uint16_t h) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
  return f;
}
// Two values rounded to nearest even and packed, `lo` in the low half.
AVO_INLINE uint32_t pack_half(float lo, float hi) {
  uint32_t r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}
AVO_INLINE uint32_t pack_bfloat(float lo, float hi) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}
#endif

// Two values as 16-bit numbers of type X, packed, and back; of two such pairs the larger numbers and the smaller: NaN
// of a NaN, and 0 is larger than -0.
template <class X> AVO_INLINE uint32_t pack_pair(float lo, float hi);
template <> AVO_INLINE uint32_t pack_pair<f16>(float lo, float hi) { return pack_half(lo, hi); }
template <> AVO_INLINE uint32_t pack_pair<bf16>(float lo, float hi) { return pack_bfloat(lo, hi); }
template <class X> AVO_INLINE float low_of_pair(uint32_t pair);
template <> AVO_INLINE float low_of_pair<f16>(uint32_t pair) { return half_to_float(uint16_t(pair)); }
template <> AVO_INLINE float low_of_pair<bf16>(uint32_t pair) { return as_float(pair << 16); }
template <class X> AVO_INLINE float high_of_pair(uint32_t pair) { return low_of_pair<X>(pair >> 16); }
#ifdef AVO_EMULATOR
template <class X> AVO_INLINE uint32_t larger_of_pairs(uint32_t a, uint32_t b) {
  return pack_pair<X>(avo_max_nan(low_of_pair<X>(a), low_of_pair<X>(b)),
                      avo_max_nan(high_of_pair<X>(a), high_of_pair<X>(b)));
}
template <class X> AVO_INLINE uint32_t smaller_of_pairs(uint32_t a, uint32_t b) {
  return pack_pair<X>(avo_min_nan(low_of_pair<X>(a), low_of_pair<X>(b)),
                      avo_min_nan(high_of_pair<X>(a), high_of_pair<X>(b)));
}
#else
template <class X> AVO_INLINE uint32_t larger_of_pairs(uint32_t a, uint32_t b);
template <class X> AVO_INLINE uint32_t smaller_of_pairs(uint32_t a, uint32_t b);
#define AVO_OF_PAIRS(NAME, X, INSTRUCTION)                                                                             \
  template <> AVO_INLINE uint32_t NAME<X>(uint32_t a, uint32_t b) {                                                    \
    uint32_t r;                                                                                                        \
    asm(INSTRUCTION " %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));                                                        \
    return r;                                                                                                          \
  }
AVO_OF_PAIRS(larger_of_pairs, f16, "max.NaN.f16x2")
AVO_OF_PAIRS(larger_of_pairs, bf16, "max.NaN.bf16x2")
AVO_OF_PAIRS(smaller_of_pairs, f16, "min.NaN.f16x2")
AVO_OF_PAIRS(smaller_of_pairs, bf16, "min.NaN.bf16x2")
#undef AVO_OF_PAIRS
#endif

// To nearest even, beyond 448 the largest number, NaN as NaN; in integers, for GPUs that have no instruction for it.
AVO_INLINE uint32_t to_e4m3(float v) {
  const uint32_t bits = as_bits(v), size = bits & 0x7fffffffu, sign = bits >> 24 & 0x80u;
  if (size > 0x7f800000u) return 0x7fu;
  if (size >= 0x43e00000u) return sign | 0x7eu;
  // Below 2^-6 the last bit of the sum is that of a denormal.
  if (size < 0x3c800000u) return sign | (as_bits(as_float(size) + 16384.0f) - as_bits(16384.0f));
  return sign | ((size - (120u << 23) + 0x7ffffu + (size >> 20 & 1)) >> 20);
}
// Two values, rounded and packed, `lo` in the low byte.
AVO_INLINE uint32_t pack_e4m3(float lo, float hi) {
#if !defined(AVO_EMULATOR) && __CUDA_ARCH__ >= 890
  uint16_t r;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(hi), "f"(lo));
  return r;
#else
  return to_e4m3(hi) << 8 | to_e4m3(lo);
#endif
}
// As an f16 with the same bits its exponent is 8 less.
AVO_INLINE float e4m3_to_float(uint32_t v) {
  const float size = half_to_float(uint16_t((v & 0x80u) << 8 | (v & 0x7fu) << 7)) * 256.0f;
  return (v & 0x7fu) == 0x7fu ? as_float(0x7fc00000u) : size;
}
// Towards zero, of a number in [-128, 127]; 0 of NaN.
AVO_INLINE uint32_t to_int8(float v) { return v == v ? uint32_t(int(v)) & 0xffu : 0u; }

AVO_INLINE float widen(float v) { return v; }
AVO_INLINE double widen(double v) { return v; }
AVO_INLINE float widen(f16 v) { return half_to_float(v.bits); }
AVO_INLINE float widen(bf16 v) { return as_float(uint32_t(v.bits) << 16); }
AVO_INLINE float widen(f8 v) { return e4m3_to_float(v.bits); }
AVO_INLINE float widen(i8 v) { return float(static_cast<signed char>(v.bits)); }

// Round to the element type, to nearest even (to i8 towards zero).
template <class X> AVO_INLINE X narrow(compute_t<X> v);
template <> AVO_INLINE float narrow<float>(float v) { return v; }
template <> AVO_INLINE double narrow<double>(double v) { return v; }
template <> AVO_INLINE f16 narrow<f16>(float v) { return f16{uint16_t(pack_half(v, 0.f))}; }
template <> AVO_INLINE bf16 narrow<bf16>(float v) { return bf16{uint16_t(pack_bfloat(v, 0.f))}; }
template <> AVO_INLINE f8 narrow<f8>(float v) { return f8{uint8_t(pack_e4m3(v, 0.f))}; }
template <> AVO_INLINE i8 narrow<i8>(float v) { return i8{uint8_t(to_int8(v))}; }

// The value as a result of type X holds it.
template <class X> AVO_INLINE compute_t<X> m_round_to(compute_t<X> v) { return widen(narrow<X>(v)); }
AVO_INLINE float m_round_f32(float v) { return v; }
AVO_INLINE float m_round_f16(float v) { return m_round_to<f16>(v); }
AVO_INLINE float m_round_bf16(float v) { return m_round_to<bf16>(v); }
AVO_INLINE float m_round_f8(float v) { return m_round_to<f8>(v); }
AVO_INLINE float m_round_i8(float v) { return m_round_to<i8>(v); }
AVO_INLINE double m_round_f32(double v) { return double(float(v)); }
AVO_INLINE double m_round_f16(double v) { return double(m_round_f16(float(v))); }
AVO_INLINE double m_round_bf16(double v) { return double(m_round_bf16(float(v))); }
AVO_INLINE double m_round_f8(double v) { return double(m_round_f8(float(v))); }
AVO_INLINE double m_round_i8(double v) { return double(m_round_i8(float(v))); }

// Values that have no literal.
template <class C> AVO_INLINE C lowest();
template <> AVO_INLINE float lowest<float>() { return as_float(0xff800000u); }
template <> AVO_INLINE double lowest<double>() { return __hiloint2double(int(0xfff00000), 0); }
template <class C> AVO_INLINE C highest() { return -lowest<C>(); }
template <class C> AVO_INLINE C quiet_nan();
template <> AVO_INLINE float quiet_nan<float>() { return as_float(0x7fc00000u); }
template <> AVO_INLINE double quiet_nan<double>() { return __hiloint2double(0x7ff80000, 0); }

} // namespace avo

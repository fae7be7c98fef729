// Elementary functions on float and double for device code, by the names that generated kernels use.
//
// Float functions are built on the special-function unit, with the argument reduced by fma so that its
// rounding does not grow with |x|. Compile with --fmad=false: every fma is spelled. Bounds in ulp, as
// tests/test_math.py measures them on the host twin, whose ex2, rcp and rsqrt are exactly rounded; in
// brackets what the documented errors of the instructions (ex2 2 ulp, rcp 1 ulp, rsqrt 2 ulp) can add:
//   exp, exp_neg_sq, exp_neg_half_sq 1.1 (+2)   tanh 1.7 (+2)   rsqrt 1.1 (+0: refined)
//   sigmoid, sigmoid_rest 3.1 (+2)   x_sigmoid 3.3 (+2)   erfc 7 at 0, 3 in the tail (+5)
//   ndtr 1.3 up to |x| = 1, 5.8 beyond (+2)   x_ndtr 6.7 (+2)
//   recip, sqrt, division: correctly rounded   others: CUDA's own (1 to 2)
// Results of exp_neg_sq, exp_neg_half_sq, erfc and ndtr below FLT_MIN are flushed to zero, and those of sigmoid
// where results have 16 bits; else denormals are kept.
// Double functions are CUDA's own. With AVO_EMULATOR defined the same source compiles for the host.
#pragma once

#include "../common/polynomials.h"

#ifdef AVO_EMULATOR
#include <cmath>
#define AVO_MATH static inline
#else
#define AVO_MATH __device__ __forceinline__
#endif

#define AVO_PHILOX AVO_MATH
#include "../common/philox.h"

// ---- single instructions ------------------------------------------------------------------------

#ifdef AVO_EMULATOR
AVO_MATH float avo_flush(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }
AVO_MATH float avo_ex2(float x) { return avo_flush(float(std::exp2(double(avo_flush(x))))); }
AVO_MATH float avo_rcp(float x) { return avo_flush(1.0f / avo_flush(x)); }
AVO_MATH float avo_rsqrt(float x) { return float(1.0 / std::sqrt(double(x))); }
AVO_MATH float avo_max_nan(float a, float b) { return a > b || a != a || (a == b && std::signbit(b)) ? a : b; }
AVO_MATH float avo_min_nan(float a, float b) { return a < b || a != a || (a == b && std::signbit(a)) ? a : b; }
#else
// 2^x; denormal arguments and results are zero.
AVO_MATH float avo_ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// 1 / x; denormal arguments and results are zero.
AVO_MATH float avo_rcp(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// 1 / sqrt(x), denormal arguments included.
AVO_MATH float avo_rsqrt(float x) {
  float y;
  asm("rsqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
AVO_MATH float avo_max_nan(float a, float b) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
AVO_MATH float avo_min_nan(float a, float b) {
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
#endif

// ---- comparisons and selection ------------------------------------------------------------------

AVO_MATH bool m_and(bool a, bool b) { return a && b; }
AVO_MATH bool m_or(bool a, bool b) { return a || b; }
AVO_MATH bool m_not(bool a) { return !a; }
AVO_MATH float m_max(float a, float b) { return avo_max_nan(a, b); }
AVO_MATH float m_min(float a, float b) { return avo_min_nan(a, b); }
AVO_MATH double m_max(double a, double b) { return a >= b || a != a ? a : b; }
AVO_MATH double m_min(double a, double b) { return a <= b || a != a ? a : b; }

#define AVO_BOTH_TYPES(declare) declare(float) declare(double)
#define AVO_SELECTION(T)                                                                                               \
  AVO_MATH bool m_lt(T a, T b) { return a < b; }                                                                       \
  AVO_MATH bool m_le(T a, T b) { return a <= b; }                                                                      \
  AVO_MATH bool m_gt(T a, T b) { return a > b; }                                                                       \
  AVO_MATH bool m_ge(T a, T b) { return a >= b; }                                                                      \
  AVO_MATH bool m_eq(T a, T b) { return a == b; }                                                                      \
  AVO_MATH bool m_ne(T a, T b) { return a != b; }                                                                      \
  AVO_MATH T m_where(bool mask, T a, T b) { return mask ? a : b; }                                                     \
  AVO_MATH T m_neg(T x) { return -x; }                                                                                 \
  AVO_MATH T m_sign(T x) { return T(x > T(0)) - T(x < T(0)); } /* 0 for NaN, as torch.sign */                          \
  AVO_MATH T m_recip(T x) { return T(1) / x; }
AVO_BOTH_TYPES(AVO_SELECTION)
#undef AVO_SELECTION
#undef AVO_BOTH_TYPES

// ---- functions of CUDA's own --------------------------------------------------------------------

AVO_MATH float m_fma(float a, float b, float c) { return fmaf(a, b, c); }
AVO_MATH double m_fma(double a, double b, double c) { return fma(a, b, c); }

#define AVO_LIBRARY(name, single, twice)                                                                               \
  AVO_MATH float m_##name(float x) { return single(x); }                                                               \
  AVO_MATH double m_##name(double x) { return twice(x); }
AVO_LIBRARY(abs, fabsf, fabs)
AVO_LIBRARY(floor, floorf, floor)
AVO_LIBRARY(round, rintf, rint)
AVO_LIBRARY(trunc, truncf, trunc)
AVO_LIBRARY(sqrt, sqrtf, sqrt)
AVO_LIBRARY(expm1, expm1f, expm1)
AVO_LIBRARY(log, logf, log)
AVO_LIBRARY(log1p, log1pf, log1p)
AVO_LIBRARY(sin, sinf, sin)
AVO_LIBRARY(cos, cosf, cos)
AVO_LIBRARY(erf, erff, erf)
AVO_LIBRARY(exp2, exp2f, exp2)
AVO_LIBRARY(tan, tanf, tan)
AVO_LIBRARY(asin, asinf, asin)
AVO_LIBRARY(acos, acosf, acos)
AVO_LIBRARY(atan, atanf, atan)
AVO_LIBRARY(sinh, sinhf, sinh)
AVO_LIBRARY(cosh, coshf, cosh)
AVO_LIBRARY(asinh, asinhf, asinh)
AVO_LIBRARY(acosh, acoshf, acosh)
AVO_LIBRARY(atanh, atanhf, atanh)
AVO_LIBRARY(lgamma, lgammaf, lgamma)
#undef AVO_LIBRARY
#define AVO_LIBRARY(name)                                                                                              \
  AVO_MATH float m_##name(float a, float b) { return name##f(a, b); }                                                  \
  AVO_MATH double m_##name(double a, double b) { return name(a, b); }
AVO_LIBRARY(pow)
AVO_LIBRARY(fmod)
AVO_LIBRARY(atan2)
AVO_LIBRARY(hypot)
#undef AVO_LIBRARY

// ---- exp and its kin, float ---------------------------------------------------------------------

// Horner's rule, highest power first.
AVO_MATH float avo_horner_step(float, float value) { return value; }
template <class... More> AVO_MATH float avo_horner_step(float x, float value, float next, More... more) {
  return avo_horner_step(x, fmaf(value, x, next), more...);
}
template <class... More> AVO_MATH float avo_horner(float x, float first, More... more) {
  return avo_horner_step(x, first, more...);
}

// log2(e) in two parts.
#define AVO_LOG2E 1.44269502f
#define AVO_LOG2E_LOW 1.92596300e-8f
#define AVO_LN2 0.693147182f

// exp(x) = 2^b exp(c), b = x log2(e) rounded, c what the rounding lost (tiny: exp(c) = 1 + c). The upper
// bound is the first float whose exp overflows: c > 0 there, so that inf + inf c is inf; the lower one keeps
// inf - inf out of c. What the instruction would flush is computed 2^64 times as large.
AVO_MATH float m_exp(float x) {
  x = avo_max_nan(avo_min_nan(x, 88.7228394f), -104.0f);
  const float b = x * AVO_LOG2E;
  const float c = fmaf(x, AVO_LOG2E_LOW, fmaf(x, AVO_LOG2E, -b)) * AVO_LN2;
  const bool small = b < -125.0f;
  const float e = avo_ex2(small ? b + 64.0f : b), value = fmaf(e, c, e);
  return small ? value * 5.42101086e-20f : value;
}

// exp(-(s + rest)): the same; rest is what was rounded off s.
AVO_MATH float avo_exp_neg(float s, float rest) {
  const float lost = fmaf(s, AVO_LOG2E_LOW * AVO_LN2, rest);
  const float b = s * AVO_LOG2E;
  const float c = fmaf(fmaf(s, AVO_LOG2E, -b), -AVO_LN2, -lost);
  const float e = avo_ex2(-b);
  return fmaf(e, c, e);
}

// exp(-z^2).
AVO_MATH float m_exp_neg_sq(float z) {
  z = avo_min_nan(fabsf(z), 10.25f); // exp(-10.25^2) < 2^-150
  const float square = z * z;
  return avo_exp_neg(square, fmaf(z, z, -square));
}

// exp(-x^2 / 2), the density of the normal distribution but for its factor.
AVO_MATH float m_exp_neg_half_sq(float x) {
  x = avo_min_nan(fabsf(x), 14.5f);
  const float square = x * x;
  return avo_exp_neg(0.5f * square, 0.5f * fmaf(x, x, -square));
}

// One Newton step on the approximation of 1 / x, for an x whose reciprocal is normal.
AVO_MATH float avo_rcp_refined(float x) {
  const float y = avo_rcp(x);
  return fmaf(y, fmaf(-x, y, 1.0f), y);
}

// 1 / (1 + exp(-x)), by the exponential of -|x|: sigmoid(-x) is then one product more.
AVO_MATH float m_sigmoid(float x) {
  const float e = m_exp(-fabsf(x)), upper = avo_rcp_refined(1.0f + e);
  return x < 0.0f ? e * upper : upper;
}
// a / b, r = 1 / b: the product, and its remainder. That is NaN beside an infinity, and has lost the sign of a zero:
// there the product is the quotient.
AVO_MATH float m_quotient(float a, float b, float r) {
  const float q = a * r, corrected = fmaf(fmaf(-b, q, a), r, q);
  return fabsf(corrected) > 0.0f ? corrected : q;
}
// x sigmoid(x) with one rounding fewer than the product.
AVO_MATH float m_x_sigmoid(float x) {
  const float e = m_exp(-fabsf(x));
  return (x < 0.0f ? x * e : x) / (1.0f + e);
}
// 1 - sigmoid(x); s = m_sigmoid(x).
AVO_MATH float m_sigmoid_rest(float x, float) { return m_sigmoid(-x); }

// Near 0 a polynomial; else 1 - 2 / (exp(2 |x|) + 1), where the error of exp shrinks and needs no correction.
AVO_MATH float m_tanh(float x) {
  const float square = x * x;
  const float near = fmaf(x, square * avo_horner(square, AVO_POLYNOMIAL_TANH_F32), x);
  const float e = avo_ex2(fabsf(x) * (2.0f * AVO_LOG2E));
  const float far = fmaf(-2.0f, avo_rcp(1.0f + e), 1.0f);
  return copysignf(fabsf(x) < 0.625f ? near : far, x);
}

// One Newton step on the approximation y: y + y h, h = (1 - x y^2) / 2. At 0 and infinity y is exact and h is
// NaN.
AVO_MATH float m_rsqrt(float x) {
  const float y = avo_rsqrt(x);
  const float h = fmaf(-(x * y), y, 1.0f) * 0.5f;
  return h == h ? fmaf(y, h, y) : y;
}

// erfc(z) = exp(-z^2) k P(k), k = 1 / (1 + s |z|), and 2 minus that on the negative side; e =
// m_exp_neg_sq(z).
AVO_MATH float m_erfc(float z, float e) {
  const float k = avo_rcp(fmaf(AVO_ERFC_SCALE, fabsf(z), 1.0f));
  const float q = e * (k * avo_horner(k, AVO_POLYNOMIAL_ERFC_F32));
  return z < 0.0f ? 2.0f - q : q;
}

// ---- for 16-bit results, float ------------------------------------------------------------------

// Kernels whose results are rounded to 16 bits say m_exp<A> with A = Coarse: no correction of the argument's rounding.
// The relative error is at most |x| 2^-23 + 2^-22 (exp_neg_sq, of z^2 in place of x; twice the second term for exp), or
// 2^-21 + the fit's for the rest: below 4e-6 where a float16 does not vanish, which is less than 0.01 of its ulp.
// A = Rough allows 3.6e-5, as much of a bfloat16.
struct Fine {};
struct Coarse {};
struct Rough {};

template <class A, class B> struct AvoSame {
  static constexpr bool value = false;
};
template <class A> struct AvoSame<A, A> {
  static constexpr bool value = true;
};
template <class A> struct AvoIsCoarse {
  static constexpr bool value = !AvoSame<A, Fine>::value;
};

// The square of exp(x / 2), which is not flushed before the result is: x exp(x) at -90 is a bfloat16.
template <class A> AVO_MATH float m_exp(float x) {
  if constexpr (AvoIsCoarse<A>::value) {
    const float root = avo_ex2(x * (0.5f * AVO_LOG2E));
    return root * root;
  }
  return m_exp(x);
}
// What is summed to 1 and more, where it is of no moment that a small one is flushed. kKept: it is used elsewhere too.
template <class A, bool kKept = false> AVO_MATH float m_exp_summand(float x) {
  if constexpr (AvoIsCoarse<A>::value && !kKept) return avo_ex2(x * AVO_LOG2E);
  return m_exp<A>(x);
}
template <class A> AVO_MATH float m_exp_neg_sq(float z) {
  if constexpr (AvoIsCoarse<A>::value) return avo_ex2(z * z * -AVO_LOG2E);
  return m_exp_neg_sq(z);
}
template <class A> AVO_MATH float m_exp_neg_half_sq(float x) {
  if constexpr (AvoIsCoarse<A>::value) return avo_ex2(x * x * (-0.5f * AVO_LOG2E));
  return m_exp_neg_half_sq(x);
}
template <class A> AVO_MATH float m_sigmoid(float x) {
  if constexpr (AvoIsCoarse<A>::value) return avo_rcp(1.0f + avo_ex2(x * -AVO_LOG2E));
  return m_sigmoid(x);
}
template <class A> AVO_MATH float m_quotient(float a, float b, float r) {
  if constexpr (AvoIsCoarse<A>::value) return a * r;
  return m_quotient(a, b, r);
}
template <class A> AVO_MATH float m_x_sigmoid(float x) {
  if constexpr (AvoIsCoarse<A>::value) return x * m_sigmoid<A>(x);
  return m_x_sigmoid(x);
}
template <class A> AVO_MATH float m_sigmoid_rest(float x, float s) {
  if constexpr (AvoIsCoarse<A>::value) return 1.0f - s;
  return m_sigmoid_rest(x, s);
}
template <class A> AVO_MATH float m_erfc(float z, float e) {
  if constexpr (AvoIsCoarse<A>::value) {
    const float k = avo_rcp(fmaf(AVO_ERFC_SCALE, fabsf(z), 1.0f));
    const float q = e * (k * avo_horner(k, AVO_POLYNOMIAL_ERFC_COARSE));
    return z < 0.0f ? 2.0f - q : q;
  }
  return m_erfc(z, e);
}

// Phi(-a) = e k P(k), k = 1 / (1 + s a), a >= 0, the tail of the normal distribution; e = m_exp_neg_half_sq(a).
template <class A> AVO_MATH float avo_ndtr_tail(float a, float e) {
  if constexpr (AvoSame<A, Rough>::value) {
    const float k = avo_rcp(fmaf(AVO_NDTR_SCALE_ROUGH, a, 1.0f));
    return e * (k * avo_horner(k, AVO_POLYNOMIAL_NDTR_BF16));
  }
  if constexpr (AvoIsCoarse<A>::value) {
    const float k = avo_rcp(fmaf(AVO_NDTR_SCALE, a, 1.0f));
    return e * (k * avo_horner(k, AVO_POLYNOMIAL_NDTR_F16));
  }
  const float k = avo_rcp_refined(fmaf(AVO_NDTR_SCALE, a, 1.0f));
  return e * (k * avo_horner(k, AVO_POLYNOMIAL_NDTR_F32));
}
// Phi(x). In float32 near 0 by a polynomial: the tail's variable k would magnify its rounding, and the gradient of GELU
// the result.
template <class A> AVO_MATH float m_ndtr(float x, float e) {
  const float tail = avo_ndtr_tail<A>(avo_min_nan(fabsf(x), 1e18f), e), far = x < 0.0f ? tail : 1.0f - tail;
  if constexpr (AvoIsCoarse<A>::value) return far;
  const float near = fmaf(x, avo_horner(x * x, AVO_POLYNOMIAL_NDTR_NEAR_F32), 0.5f);
  return fabsf(x) < 1.0f ? near : far;
}
// x Phi(x) = max(x, 0) - |x| Phi(-|x|): no more than the tail is inexact. The bound keeps inf * 0 out, the -0 the sign
// of a zero.
template <class A> AVO_MATH float m_x_ndtr(float x, float e) {
  const float a = avo_min_nan(fabsf(x), 1e18f);
  return fmaf(-a, avo_ndtr_tail<A>(a, e), avo_max_nan(x, -0.0f));
}
AVO_MATH float m_ndtr(float x, float e) { return m_ndtr<Fine>(x, e); }
AVO_MATH float m_x_ndtr(float x, float e) { return m_x_ndtr<Fine>(x, e); }

// ---- and double ---------------------------------------------------------------------------------

AVO_MATH double m_exp(double x) { return exp(x); }
AVO_MATH double m_exp_neg_sq(double z) {
  z = fabs(z) > 27.5 ? 27.5 : z; // exp(-27.5^2) rounds to zero
  const double square = z * z, e = exp(-square);
  return fma(-e, fma(z, z, -square), e);
}
AVO_MATH double m_exp_neg_half_sq(double x) {
  x = fabs(x) > 39.0 ? 39.0 : x;
  const double square = x * x, e = exp(-0.5 * square);
  return fma(-0.5 * e, fma(x, x, -square), e);
}
AVO_MATH double m_sigmoid(double x) {
  const double e = exp(-fabs(x)), upper = 1.0 / (1.0 + e);
  return x < 0.0 ? e * upper : upper;
}
AVO_MATH double m_quotient(double a, double b, double) { return a / b; }
AVO_MATH double m_x_sigmoid(double x) { return x * m_sigmoid(x); }
AVO_MATH double m_sigmoid_rest(double x, double) { return m_sigmoid(-x); }
AVO_MATH double m_tanh(double x) { return tanh(x); }
AVO_MATH double m_rsqrt(double x) { return 1.0 / sqrt(x); }
AVO_MATH double m_erfc(double z, double) { return erfc(z); }
// Phi(-a) = erfc(z) / 2; what rounding lost of z = a / sqrt(2) follows by the derivative, -e / sqrt(pi).
AVO_MATH double avo_ndtr_tail(double a, double e) {
  a = a > 39.0 ? 39.0 : a;
  const double z = a * AVO_SQRT_HALF, lost = fma(a, AVO_SQRT_HALF_LOW, fma(a, AVO_SQRT_HALF, -z));
  return fma(e, -AVO_SQRT_1_PI * lost, 0.5 * erfc(z));
}
AVO_MATH double m_ndtr(double x, double e) {
  const double tail = avo_ndtr_tail(fabs(x), e);
  return x < 0.0 ? tail : 1.0 - tail;
}
AVO_MATH double m_x_ndtr(double x, double e) {
  const double a = fabs(x) > 1e150 ? 1e150 : fabs(x);
  return fma(-a, avo_ndtr_tail(a, e), m_max(x, -0.0));
}

template <class A> AVO_MATH double m_exp(double x) { return m_exp(x); }
template <class A, bool kKept = false> AVO_MATH double m_exp_summand(double x) { return m_exp(x); }
template <class A> AVO_MATH double m_exp_neg_sq(double z) { return m_exp_neg_sq(z); }
template <class A> AVO_MATH double m_exp_neg_half_sq(double x) { return m_exp_neg_half_sq(x); }
template <class A> AVO_MATH double m_sigmoid(double x) { return m_sigmoid(x); }
template <class A> AVO_MATH double m_quotient(double a, double b, double r) { return m_quotient(a, b, r); }
template <class A> AVO_MATH double m_x_sigmoid(double x) { return m_x_sigmoid(x); }
template <class A> AVO_MATH double m_sigmoid_rest(double x, double s) { return m_sigmoid_rest(x, s); }
template <class A> AVO_MATH double m_erfc(double z, double e) { return m_erfc(z, e); }
template <class A> AVO_MATH double m_ndtr(double x, double e) { return m_ndtr(x, e); }
template <class A> AVO_MATH double m_x_ndtr(double x, double e) { return m_x_ndtr(x, e); }

// ---- random numbers -----------------------------------------------------------------------------------------------

// A number in [0, 1) for element j of the vector of V columns that starts at `column`, a multiple of V. Four neighbours
// share one Philox, which the compiler finds once they stand side by side.
template <class C, int V> AVO_MATH C m_uniform(long long seed, long long column, int j) {
  const int within = V % 4 == 0 ? 0 : int(column & 3);
  unsigned w[4][1];
  avo_philox<1>(static_cast<unsigned long long>(seed),
                static_cast<unsigned long long>((column >> 2) + ((within + j) >> 2)), w);
  const int which = (within + j) & 3;
  const unsigned chosen = which == 0 ? w[0][0] : which == 1 ? w[1][0] : which == 2 ? w[2][0] : w[3][0];
  return C(chosen >> 8) * C(0x1p-24);
}

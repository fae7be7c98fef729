// Elementary functions on logical vectors, and on scalars with the bits of a vector's lane.
//
// Error bounds in ulp (with fma / the baseline without), which tests/test_math.py measures and holds:
//   float   exp 1.1   expm1 1.8   log 0.9   log1p 1.5   sigmoid, sigmoid_rest 2.4   tanh 1.7   rsqrt 1.5
//           erf 1.4 / 1.5   x_sigmoid 2.7   ndtr 4.7 / 5.0   x_ndtr 6.7 / 8.5   exp_neg_sq 1.3 / 2.2   erfc 7 / 8 (at
//           0, where it feels the rounding of its variable threefold)
//   double  exp 1.1   expm1 1.7   sigmoid 2.4   tanh 1.7   rsqrt 1.5   exp_neg_sq 1.4
// A denormal result is off by up to one more unit. sqrt and recip are correctly rounded; sin, cos, pow and what follows
// it in the list of libm's below, and log, log1p, erf and erfc of double, are libm's. Denormal arguments and results
// are kept.
#pragma once

#include "../common/philox.h"
#include "../common/polynomials.h"
#include "vec.h"

namespace AVO_ISA_NAMESPACE {
namespace {

// Horner's rule, highest power first; coefficients of the register's lane type.
template <class R> AVO_INLINE R horner_step(R, R value) { return value; }
template <class R, class C, class... More> AVO_INLINE R horner_step(R x, R value, C next, More... more) {
  return horner_step(x, r_fma(value, x, splat(next)), more...);
}
template <class R, class C, class... More> AVO_INLINE R horner(R x, C first, More... more) {
  return horner_step(x, splat(first), more...);
}

// ---- exp ----------------------------------------------------------------------------------------

template <class C> struct ExpNumbers;
template <> struct ExpNumbers<float> {
  static constexpr float log2e = 1.44269504f;
  static constexpr float round = 0x1.8p23f;       // x + round - round: to the nearest whole number
  static constexpr float ln2_high = 0.693359375f; // 9 bits: n * ln2_high is exact
  static constexpr float ln2_low = -2.12194440e-4f;
  static constexpr float over = 89.0f, under = -104.0f; // exp overflows; exp < 2^-150 rounds to 0
  static constexpr float one_sided = 45.0f;             // exp(-x) is nothing beside 1
  static constexpr float square_under = 10.25f;         // exp(-z^2) < 2^-150
  static constexpr float half_square_under = 14.5f;     // exp(-x^2 / 2) < 2^-150
  static constexpr uint32_t round_bits = 0x4b400000, bias = 127, split = 0xfffff000;
  static constexpr int mantissa = 23, lift = 64; // 2^(n + lift) is normal wherever exp is not 0, and n <= 0
};
template <> struct ExpNumbers<double> {
  static constexpr double log2e = 1.4426950408889634, round = 0x1.8p52;
  static constexpr double ln2_high = 0x1.62e42feep-1; // 32 bits
  static constexpr double ln2_low = 1.90821492927058770002e-10;
  static constexpr double over = 710.0, under = -746.0;
  static constexpr double one_sided = 45.0;
  static constexpr double square_under = 27.5, half_square_under = 39.0;
  static constexpr uint64_t round_bits = 0x4338000000000000, bias = 1023, split = 0xfffffffff8000000;
  static constexpr int mantissa = 52, lift = 128;
};

AVO_INLINE RegF exp_rest(RegF r) { return horner(r, AVO_POLYNOMIAL_EXP_F32); }
AVO_INLINE RegD exp_rest(RegD r) { return horner(r, AVO_POLYNOMIAL_EXP_F64); }
AVO_INLINE RegF tanh_rest(RegF t) { return horner(t, AVO_POLYNOMIAL_TANH_F32); }
AVO_INLINE RegD tanh_rest(RegD t) { return horner(t, AVO_POLYNOMIAL_TANH_F64); }

// exp(x - low) = 2^n (1 + q), |x - low - n ln 2| <= ln(2)/2 (a little more by `low`); n is held in the low
// bits of t.
template <class R> struct ExpParts {
  R q;
  UintOf<R> t;
};
template <class R> AVO_INLINE ExpParts<R> exp_parts(R x, R low) {
  using K = ExpNumbers<typename LaneOf<R>::type>;
  const R t = r_fma(x, splat(K::log2e), splat(K::round));
  const R n = t - splat(K::round);
  R r = r_fma(n, splat(-K::ln2_high), x);
  r = r_fma(n, splat(-K::ln2_low), r);
  r = r - low;
  return {r_fma(r * r, exp_rest(r), r), (UintOf<R>)t};
}

// 2^n as first * second, each normal, so that the last product alone rounds a denormal result.
template <class R> struct Power {
  R first, second, second_inverse;
};
template <class R> AVO_INLINE Power<R> power_of_two(UintOf<R> t) {
  using K = ExpNumbers<typename LaneOf<R>::type>;
  const UintOf<R> sum = t - (K::round_bits - 2 * K::bias);
  const UintOf<R> first = sum >> 1, second = sum - first;
  return {(R)(first << K::mantissa), (R)(second << K::mantissa), (R)((2 * K::bias - second) << K::mantissa)};
}

template <class R> AVO_INLINE R r_exp(R x) {
  using C = typename LaneOf<R>::type;
  using K = ExpNumbers<C>;
  x = r_max(splat(K::under), r_min(splat(K::over), x)); // NaN is the second operand: it stays
  const ExpParts<R> e = exp_parts(x, R{});
  const Power<R> power = power_of_two<R>(e.t);
  return (splat(C(1)) + e.q) * power.first * power.second;
}

// 2^n (1 + q), n <= 0: lifted, so that the last product alone rounds a denormal result.
template <class R> AVO_INLINE R small_exp(ExpParts<R> e) {
  using C = typename LaneOf<R>::type;
  using K = ExpNumbers<C>;
  const R power = (R)((e.t - (K::round_bits - K::bias - K::lift)) << K::mantissa);
  const R lower = (R)(UintOf<R>{} + ((K::bias - K::lift) << K::mantissa));
  return (splat(C(1)) + e.q) * power * lower;
}

// exp(x) for x <= 0: the bits of r_exp, by fewer instructions.
template <class R> AVO_INLINE R r_exp_of_negative(R x) {
  using K = ExpNumbers<typename LaneOf<R>::type>;
  return small_exp(exp_parts(r_max(splat(K::under), x), R{}));
}

template <class R> AVO_INLINE R r_expm1(R x) {
  using C = typename LaneOf<R>::type;
  using K = ExpNumbers<C>;
  const R bounded = r_max(splat(-K::one_sided), r_min(splat(K::over), x));
  const ExpParts<R> e = exp_parts(bounded, R{});
  const Power<R> p = power_of_two<R>(e.t);
  const R value = r_fma(e.q, p.first, p.first - p.second_inverse) * p.second;
  return x == R{} ? x : value; // keeps -0
}

// a * b - product, where product = a * b rounded: what the rounding lost.
template <class R> AVO_INLINE R r_product_rest(R a, R b, R product) {
#if AVO_HAS_FMA
  return r_fma(a, b, -product);
#else
  // Halves of the bits, whose products are exact.
  const R a_head = (R)((UintOf<R>)a & ExpNumbers<typename LaneOf<R>::type>::split),
          b_head = (R)((UintOf<R>)b & ExpNumbers<typename LaneOf<R>::type>::split);
  const R a_tail = a - a_head, b_tail = b - b_head;
  return ((a_head * b_head - product) + a_head * b_tail + a_tail * b_head) + a_tail * b_tail;
#endif
}

// exp(-factor z^2), 0 from `under` on; the square kept to twice the precision: what z * z rounds off is subtracted from
// the reduced argument.
template <class R> AVO_INLINE R r_exp_neg_sq(R z, typename LaneOf<R>::type factor, typename LaneOf<R>::type under) {
  z = r_min(splat(under), r_abs(z));
  const R high = z * z, low = r_product_rest(z, z, high);
  return small_exp(exp_parts(splat(-factor) * high, splat(factor) * low));
}
template <class R> AVO_INLINE R r_exp_neg_sq(R z) {
  using C = typename LaneOf<R>::type;
  return r_exp_neg_sq(z, C(1), ExpNumbers<C>::square_under);
}
// exp(-x^2 / 2), the density of the normal distribution but for its factor.
template <class R> AVO_INLINE R r_exp_neg_half_sq(R x) {
  using C = typename LaneOf<R>::type;
  return r_exp_neg_sq(x, C(0.5), ExpNumbers<C>::half_square_under);
}

// 1 / (1 + exp(-x)), as exp(x) / (1 + exp(x)) on the negative side: no overflow, and full precision in the
// tail.
template <class R> AVO_INLINE R r_sigmoid(R x) {
  using C = typename LaneOf<R>::type;
  const R one = splat(C(1)), e = r_exp_of_negative(-r_abs(x));
  return (x < R{} ? e : one) / (one + e);
}

// x sigmoid(x) with one rounding fewer than the product.
template <class R> AVO_INLINE R r_x_sigmoid(R x) {
  using C = typename LaneOf<R>::type;
  const R e = r_exp_of_negative(-r_abs(x));
  return (x < R{} ? x * e : x) / (splat(C(1)) + e);
}

// 1 - sigmoid(x), of the same exponential.
template <class R> AVO_INLINE R r_sigmoid_rest(R x) {
  using C = typename LaneOf<R>::type;
  const R one = splat(C(1)), e = r_exp_of_negative(-r_abs(x));
  return (x > R{} ? e : one) / (one + e);
}

// Near 0 a polynomial; else 1 - 2 p / (1 + p) with p = exp(-2 |x|), where the error of the quotient shrinks.
template <class R> AVO_INLINE R r_tanh(R x) {
  using C = typename LaneOf<R>::type;
  using K = ExpNumbers<C>;
  const R one = splat(C(1)), size = r_min(splat(K::one_sided / 2), r_abs(x)), square = size * size;
  const R near = r_fma(size, square * tanh_rest(square), size);
  const ExpParts<R> e = exp_parts(splat(C(-2)) * size, R{});
  const R power = (R)((e.t - (K::round_bits - K::bias)) << K::mantissa);
  const R p = r_fma(e.q, power, power);
  const R far = one - (p + p) / (one + p);
  return r_with_sign(size < splat(C(0.625)) ? near : r_abs(far), x);
}

// ---- log ----------------------------------------------------------------------------------------

AVO_INLINE RegF r_log(RegF x) {
  using K = ExpNumbers<float>;
  const IntF tiny = x < splat(0x1p-126f);
  const RegF scaled = tiny ? x * splat(0x1p23f) : x;
  // The exponent of scaled / sqrt(1/2), so that the mantissa lies in [sqrt(1/2), sqrt(2)).
  const IntF root_half = splat(int32_t(0x3f3504f3));
  const IntF exponent = ((IntF)scaled - root_half) >> 23;
  const RegF f = (RegF)((IntF)scaled - (exponent << 23)) - splat(1.0f);
  const RegF n = __builtin_convertvector(exponent, RegF) - (tiny ? splat(23.0f) : RegF{});
  const RegF f2 = f * f;
  RegF rest = horner(f, AVO_POLYNOMIAL_LOG_F32) * f * f2;
  rest = r_fma(n, splat(K::ln2_low), rest);
  rest = r_fma(f2, splat(-0.5f), rest);
  RegF value = r_fma(n, splat(K::ln2_high), f + rest);
  value = x < splat(__builtin_inff()) ? value : x;       // inf and NaN
  value = x > RegF{} ? value : splat(-__builtin_inff()); // 0, and below
  value = x != x ? x : value;
  return x < RegF{} ? splat(__builtin_nanf("")) : value;
}

// log(u) + (x - (u - 1)) / u, u = 1 + x rounded: the quotient is what the rounding of u lost.
AVO_INLINE RegF r_log1p(RegF x) {
  const RegF one = splat(1.0f), u = one + x, value = r_log(u);
  const RegF corrected = value + (x - (u - one)) / u;
  const IntF usual = (u > RegF{}) & (u < splat(__builtin_inff()));
  return u == one ? x : (usual ? corrected : value);
}

// ---- erf ----------------------------------------------------------------------------------------

// erfc(z) = exp(-z^2) k P(k), k = 1 / (1 + s |z|), and 2 minus that on the negative side; e = exp(-z^2).
AVO_INLINE RegF r_erfc(RegF z, RegF e) {
  const RegF one = splat(1.0f), k = one / r_fma(splat(AVO_ERFC_SCALE), r_abs(z), one);
  const RegF q = e * (k * horner(k, AVO_POLYNOMIAL_ERFC_F32));
  return z < RegF{} ? splat(2.0f) - q : q;
}

// Phi(-a) = e k P(k), k = 1 / (1 + s a), a >= 0, the tail of the normal distribution; e = exp(-a^2 / 2).
AVO_INLINE RegF r_ndtr_tail(RegF a, RegF e) {
  const RegF one = splat(1.0f), k = one / r_fma(splat(AVO_NDTR_SCALE), a, one);
  return e * (k * horner(k, AVO_POLYNOMIAL_NDTR_F32));
}

AVO_INLINE RegF r_erf(RegF z) {
  const RegF size = r_abs(z), one = splat(1.0f);
  const RegF near = r_fma(z, horner(z * z, AVO_POLYNOMIAL_ERF_F32), z);
  const RegF far = r_with_sign(one - r_erfc(size, r_exp_neg_sq(size)), z);
  return size < one ? near : far;
}

// ---- lane by lane through libm ------------------------------------------------------------------

#define AVO_LIBM_UNARY(name, type, function)                                                                           \
  AVO_NOINLINE void name##_lanes(type *p, int n) {                                                                     \
    for (int i = 0; i < n; ++i) p[i] = function(p[i]);                                                                 \
  }                                                                                                                    \
  AVO_INLINE Vec<type> m_##name(Vec<type> a) {                                                                         \
    type lanes[kLanes];                                                                                                \
    a.store(lanes);                                                                                                    \
    name##_lanes(lanes, kLanes);                                                                                       \
    return Vec<type>::load(lanes);                                                                                     \
  }                                                                                                                    \
  AVO_INLINE type m_##name(type a) { return function(a); }
AVO_LIBM_UNARY(sin, float, __builtin_sinf)
AVO_LIBM_UNARY(cos, float, __builtin_cosf)
AVO_LIBM_UNARY(sin, double, __builtin_sin)
AVO_LIBM_UNARY(cos, double, __builtin_cos)
AVO_LIBM_UNARY(log, double, __builtin_log)
AVO_LIBM_UNARY(log1p, double, __builtin_log1p)
AVO_LIBM_UNARY(erf, double, __builtin_erf)
AVO_LIBM_UNARY(erfc_libm, double, __builtin_erfc)
#define AVO_LIBM_BOTH(name)                                                                                            \
  AVO_LIBM_UNARY(name, float, __builtin_##name##f)                                                                     \
  AVO_LIBM_UNARY(name, double, __builtin_##name)
AVO_LIBM_BOTH(trunc)
AVO_LIBM_BOTH(exp2)
AVO_LIBM_BOTH(tan)
AVO_LIBM_BOTH(asin)
AVO_LIBM_BOTH(acos)
AVO_LIBM_BOTH(atan)
AVO_LIBM_BOTH(sinh)
AVO_LIBM_BOTH(cosh)
AVO_LIBM_BOTH(asinh)
AVO_LIBM_BOTH(acosh)
AVO_LIBM_BOTH(atanh)
// lgamma itself writes the sign of gamma to a place that all threads share.
static inline float lgamma_alone(float x) {
  int sign;
  return __builtin_lgammaf_r(x, &sign);
}
static inline double lgamma_alone(double x) {
  int sign;
  return __builtin_lgamma_r(x, &sign);
}
AVO_LIBM_UNARY(lgamma, float, lgamma_alone)
AVO_LIBM_UNARY(lgamma, double, lgamma_alone)
#undef AVO_LIBM_BOTH
#undef AVO_LIBM_UNARY

#define AVO_LIBM_BINARY(name, type, function)                                                                          \
  AVO_NOINLINE void name##_lanes(type *p, const type *q, int n) {                                                      \
    for (int i = 0; i < n; ++i) p[i] = function(p[i], q[i]);                                                           \
  }                                                                                                                    \
  AVO_INLINE Vec<type> m_##name(Vec<type> a, Vec<type> b) {                                                            \
    type first[kLanes], second[kLanes];                                                                                \
    a.store(first);                                                                                                    \
    b.store(second);                                                                                                   \
    name##_lanes(first, second, kLanes);                                                                               \
    return Vec<type>::load(first);                                                                                     \
  }                                                                                                                    \
  AVO_INLINE type m_##name(type a, type b) { return function(a, b); }
#define AVO_LIBM_BOTH(name)                                                                                            \
  AVO_LIBM_BINARY(name, float, __builtin_##name##f)                                                                    \
  AVO_LIBM_BINARY(name, double, __builtin_##name)
AVO_LIBM_BOTH(pow)
AVO_LIBM_BOTH(fmod)
AVO_LIBM_BOTH(atan2)
AVO_LIBM_BOTH(hypot)
#undef AVO_LIBM_BOTH
#undef AVO_LIBM_BINARY

// ---- the names that generated code uses ---------------------------------------------------------

template <class R> AVO_INLINE R r_recip(R x) { return splat(typename LaneOf<R>::type(1)) / x; }
template <class R> AVO_INLINE R r_rsqrt(R x) { return splat(typename LaneOf<R>::type(1)) / r_sqrt(x); }
// 0 for NaN, as torch.sign.
template <class R> AVO_INLINE R r_sign(R x) {
  const R one = splat(typename LaneOf<R>::type(1));
  return x > R{} ? one : (x < R{} ? -one : R{});
}

#define AVO_UNARY(name, type)                                                                                          \
  AVO_INLINE Vec<type> m_##name(Vec<type> a) {                                                                         \
    return each<type>([](auto x) AVO_LAMBDA { return r_##name(x); }, a);                                               \
  }                                                                                                                    \
  AVO_INLINE type m_##name(type a) { return r_##name(splat(a))[0]; }
#define AVO_UNARY_BOTH(name) AVO_UNARY(name, float) AVO_UNARY(name, double)
AVO_UNARY_BOTH(neg)
AVO_UNARY_BOTH(abs)
AVO_UNARY_BOTH(sign)
AVO_UNARY_BOTH(exp)
AVO_UNARY_BOTH(expm1)
AVO_UNARY_BOTH(exp_neg_sq)
AVO_UNARY_BOTH(exp_neg_half_sq)
AVO_UNARY_BOTH(sigmoid)
AVO_UNARY_BOTH(x_sigmoid)
AVO_UNARY_BOTH(tanh)
AVO_UNARY_BOTH(floor)
AVO_UNARY_BOTH(round)
AVO_UNARY(log, float)
AVO_UNARY(log1p, float)
AVO_UNARY(erf, float)
#undef AVO_UNARY_BOTH
// Exact or correctly rounded operations: the scalar instruction gives the bits of a lane.
#define AVO_ROUNDED(name, type, scalar)                                                                                \
  AVO_INLINE Vec<type> m_##name(Vec<type> a) {                                                                         \
    return each<type>([](auto x) AVO_LAMBDA { return r_##name(x); }, a);                                               \
  }                                                                                                                    \
  AVO_INLINE type m_##name(type a) { return scalar; }
AVO_ROUNDED(sqrt, float, __builtin_sqrtf(a))
AVO_ROUNDED(sqrt, double, __builtin_sqrt(a))
AVO_ROUNDED(rsqrt, float, 1.0f / __builtin_sqrtf(a))
AVO_ROUNDED(rsqrt, double, 1.0 / __builtin_sqrt(a))
AVO_ROUNDED(recip, float, 1.0f / a)
AVO_ROUNDED(recip, double, 1.0 / a)
#undef AVO_ROUNDED
#undef AVO_UNARY

#define AVO_MORE(type)                                                                                                 \
  AVO_INLINE Vec<type> m_max(Vec<type> a, Vec<type> b) { return Whole::amax(a, b); }                                   \
  AVO_INLINE Vec<type> m_min(Vec<type> a, Vec<type> b) { return Whole::amin(a, b); }                                   \
  AVO_INLINE type m_max(type a, type b) { return keep_larger(a, b); }                                                  \
  AVO_INLINE type m_min(type a, type b) { return keep_smaller(a, b); }                                                 \
  AVO_INLINE Vec<type> m_fma(Vec<type> a, Vec<type> b, Vec<type> c) {                                                  \
    return each<type>([](auto x, auto y, auto z) AVO_LAMBDA { return r_fma(x, y, z); }, a, b, c);                      \
  }                                                                                                                    \
  AVO_INLINE type m_fma(type a, type b, type c) { return r_fma(splat(a), splat(b), splat(c))[0]; }
AVO_MORE(float)
AVO_MORE(double)
#undef AVO_MORE

// 1 - s, where s = m_sigmoid(x).
#define AVO_SIGMOID_REST(type)                                                                                         \
  AVO_INLINE Vec<type> m_sigmoid_rest(Vec<type> x, Vec<type>) {                                                        \
    return each<type>([](auto u) AVO_LAMBDA { return r_sigmoid_rest(u); }, x);                                         \
  }                                                                                                                    \
  AVO_INLINE type m_sigmoid_rest(type x, type) { return r_sigmoid_rest(splat(x))[0]; }
AVO_SIGMOID_REST(float)
AVO_SIGMOID_REST(double)
#undef AVO_SIGMOID_REST

// a / b, r = 1 / b: the product, and its remainder. That is NaN beside an infinity, and has lost the sign of a zero:
// there the product is the quotient.
template <class R> AVO_INLINE R r_quotient(R a, R b, [[maybe_unused]] R r) {
#if AVO_HAS_FMA
  const R q = a * r, corrected = r_fma(r_fma(-b, q, a), r, q);
  return r_abs(corrected) > R{} ? corrected : q;
#else
  return a / b;
#endif
}
#define AVO_QUOTIENT(type)                                                                                             \
  AVO_INLINE Vec<type> m_quotient(Vec<type> a, Vec<type> b, Vec<type> r) {                                             \
    return each<type>([](auto x, auto y, auto z) AVO_LAMBDA { return r_quotient(x, y, z); }, a, b, r);                 \
  }                                                                                                                    \
  AVO_INLINE type m_quotient(type a, type b, type r) { return r_quotient(splat(a), splat(b), splat(r))[0]; }
AVO_QUOTIENT(float)
AVO_QUOTIENT(double)
#undef AVO_QUOTIENT

// erfc(z), given e = m_exp_neg_sq(z); double takes libm's erfc and ignores e.
AVO_INLINE Vec<float> m_erfc(Vec<float> z, Vec<float> e) {
  return each<float>([](auto x, auto y) AVO_LAMBDA { return r_erfc(x, y); }, z, e);
}
AVO_INLINE float m_erfc(float z, float e) { return r_erfc(splat(z), splat(e))[0]; }
AVO_INLINE Vec<double> m_erfc(Vec<double> z, Vec<double>) { return m_erfc_libm(z); }
AVO_INLINE double m_erfc(double z, double) { return m_erfc_libm(z); }

// Phi(x), given e = m_exp_neg_half_sq(x), from the tail Phi(-|x|); and x Phi(x) = max(x, 0) - |x| Phi(-|x|), which is
// no more inexact than the tail. The bound keeps inf * 0 out, the -0 the sign of a zero.
template <class R> AVO_INLINE R r_ndtr(R x, R tail) {
  const R far = x < R{} ? tail : splat(typename LaneOf<R>::type(1)) - tail;
  if constexpr (sizeof(typename LaneOf<R>::type) == 4) {
    // Near 0 the tail's variable k would magnify its rounding.
    const R near = r_fma(x, horner(x * x, AVO_POLYNOMIAL_NDTR_NEAR_F32), splat(0.5f));
    return r_abs(x) < splat(1.0f) ? near : far;
  } else {
    return far;
  }
}
template <class R> AVO_INLINE R r_x_ndtr(R x, R tail) {
  using C = typename LaneOf<R>::type;
  const R a = r_min(splat(C(1e18)), r_abs(x));
  return r_fma(-a, tail, x >= R{} ? x : splat(C(-0.0)));
}

AVO_INLINE Vec<float> ndtr_tail(Vec<float> x, Vec<float> e) {
  return each<float>([](auto u, auto v) AVO_LAMBDA { return r_ndtr_tail(r_abs(u), v); }, x, e);
}
// erfc(z) / 2; what rounding lost of z = |x| / sqrt(2) follows by the derivative, -e / sqrt(pi).
AVO_INLINE Vec<double> ndtr_tail(Vec<double> x, Vec<double> e) {
  const auto argument = [](auto u) AVO_LAMBDA { return r_min(splat(39.0), r_abs(u)) * splat(AVO_SQRT_HALF); };
  const Vec<double> erfc = m_erfc_libm(each<double>(argument, x));
  return each<double>(
      [](auto u, auto v, auto w) AVO_LAMBDA {
        const RegD a = r_min(splat(39.0), r_abs(u)), z = a * splat(AVO_SQRT_HALF);
        const RegD lost = r_product_rest(a, splat(AVO_SQRT_HALF), z) + a * splat(AVO_SQRT_HALF_LOW);
        return r_fma(v, splat(-AVO_SQRT_1_PI) * lost, splat(0.5) * w);
      },
      x, e, erfc);
}
AVO_INLINE float ndtr_tail(float x, float e) { return r_ndtr_tail(r_abs(splat(x)), splat(e))[0]; }
AVO_INLINE double ndtr_tail(double x, double e) { return ndtr_tail(Vec<double>(x), Vec<double>(e)).r[0][0]; }

#define AVO_NDTR(name, type)                                                                                           \
  AVO_INLINE Vec<type> m_##name(Vec<type> x, Vec<type> e) {                                                            \
    return each<type>([](auto u, auto tail) AVO_LAMBDA { return r_##name(u, tail); }, x, ndtr_tail(x, e));             \
  }                                                                                                                    \
  AVO_INLINE type m_##name(type x, type e) { return r_##name(splat(x), splat(ndtr_tail(x, e)))[0]; }
AVO_NDTR(ndtr, float)
AVO_NDTR(ndtr, double)
AVO_NDTR(x_ndtr, float)
AVO_NDTR(x_ndtr, double)
#undef AVO_NDTR

// ---- random numbers -----------------------------------------------------------------------------------------------

// Four counters side by side, each in the low half of 64 bits, for which there is a product; high halves are of no
// account.
struct FourWords {
#if AVO_AVX2 || AVO_AVX512
  static constexpr int kPer = 4;
  using Reg = uint64_t __attribute__((vector_size(32)));
  AVO_INLINE static Reg product(Reg a, Reg b) { return (Reg)_mm256_mul_epu32((__m256i)a, (__m256i)b); }
  AVO_INLINE static Reg first(Reg a, Reg b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
  AVO_INLINE static Reg second(Reg a, Reg b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }
#else
  static constexpr int kPer = 2;
  using Reg = uint64_t __attribute__((vector_size(16)));
  AVO_INLINE static Reg product(Reg a, Reg b) { return (Reg)_mm_mul_epu32((__m128i)a, (__m128i)b); }
  AVO_INLINE static Reg first(Reg a, Reg b) { return __builtin_shufflevector(a, b, 0, 2); }
  AVO_INLINE static Reg second(Reg a, Reg b) { return __builtin_shufflevector(a, b, 1, 3); }
#endif
};

// The 16 numbers of the counters from `counter` on, as avo_philox has them: words 0 to 3 of each.
AVO_INLINE void philox_of_four(uint64_t seed, uint64_t counter, uint32_t (&words)[16]) {
  using Reg = FourWords::Reg;
  constexpr int per = FourWords::kPer;
  repeat<4 / per>([&](auto r) AVO_LAMBDA {
    Reg w[4] = {};
    for (int i = 0; i < per; ++i) w[0][i] = counter + uint64_t(per * r + i);
    w[1] = w[0] >> 32;
    uint32_t key0 = uint32_t(seed), key1 = uint32_t(seed >> 32);
    repeat<10>([&](auto) AVO_LAMBDA {
      const Reg a = FourWords::product(w[0], Reg{} + 0xD2511F53u), b = FourWords::product(w[2], Reg{} + 0xCD9E8D57u);
      w[0] = (b >> 32) ^ w[1] ^ uint64_t(key0);
      w[2] = (a >> 32) ^ w[3] ^ uint64_t(key1);
      w[1] = b;
      w[3] = a;
      key0 += 0x9E3779B9u;
      key1 += 0xBB67AE85u;
    });
    const Reg low = Reg{} + 0xffffffffu, front = (w[0] & low) | (w[1] << 32), back = (w[2] & low) | (w[3] << 32);
    const Reg out[2] = {FourWords::first(front, back), FourWords::second(front, back)};
    __builtin_memcpy(words + 4 * per * r, out, sizeof out);
  });
}

// Numbers in [0, 1) for 16 columns from c on.
template <class C> AVO_NOINLINE Vec<C> m_uniform(int64_t seed, int64_t c) {
  alignas(64) uint32_t words[16];
  alignas(64) C lanes[16];
  if (c & 3) {
    unsigned w[4][5]; // of five counters
    avo_philox<5>(uint64_t(seed), uint64_t(c) >> 2, w);
    for (int i = 0; i < 16; ++i) words[i] = w[(int(c & 3) + i) & 3][(int(c & 3) + i) >> 2];
  } else {
    philox_of_four(uint64_t(seed), uint64_t(c) >> 2, words);
  }
  for (int i = 0; i < 16; ++i) lanes[i] = C(int32_t(words[i] >> 8)) * C(0x1p-24);
  return Vec<C>::load(lanes);
}

} // namespace
} // namespace AVO_ISA_NAMESPACE

// The CPU and device math behind one C interface, and sweeps that measure its errors; driven by
// tests/test_math.py.
//
// Compiled several times into one library: with AVO_ISA_NAMESPACE set, the CPU vectors of one instruction
// set; with AVO_EMULATOR, the host twin of the device functions; with neither, the sweeps over all of these.
#include <stdint.h>

// Unary functions that every implementation has. erfc is m_erfc(x, m_exp_neg_sq(x)), ndtr and x_ndtr likewise.
#define MATH_EXACT(row)                                                                                      \
  row(neg) row(abs) row(sign) row(expm1) row(log) row(log1p) row(sqrt) row(rsqrt) row(recip) row(tanh)       \
      row(erf) row(sin) row(cos) row(floor) row(round) row(trunc) row(exp2) row(tan) row(asin) row(acos)     \
      row(atan) row(sinh) row(cosh) row(asinh) row(acosh) row(atanh) row(lgamma)
#define MATH_APPROXIMATE(row)                                                                                \
  row(exp) row(sigmoid) row(x_sigmoid) row(exp_neg_sq) row(erfc) row(exp_neg_half_sq) row(ndtr) row(x_ndtr) row(sigmoid_rest)
#define MATH_UNARY(row) MATH_EXACT(row) MATH_APPROXIMATE(row)

enum MathUnary {
#define MATH_ROW(name) kMath_##name,
  MATH_UNARY(MATH_ROW)
#undef MATH_ROW
      kMathUnaryCount
};
enum MathTernary { kPow, kMax, kMin, kFma, kWhereLt, kWhereLe, kWhereGt, kWhereGe, kWhereEq, kWhereNe, kFmod, kAtan2, kHypot };
enum MathReduction { kSum, kAmax, kAmin };

template <class C>
struct MathTable {
  void (*unary)(int function, const C* x, C* y, int64_t n);  // vectors
  C (*scalar)(int function, C x);                            // one value
  void (*ternary)(int function, const C* a, const C* b, const C* c, C* y, int64_t n);
  C (*scalar_ternary)(int function, C a, C b, C c);
  C (*reduce)(int function, C start, const C* x, int64_t n);
};
struct MathImplementation {
  MathTable<float> f32;
  MathTable<double> f64;
  // Kernels over AvoCpuArgs: operand 0 to operand 1, by rows and by row statistics.
  void (*copy_rows[2])(const void* args, int64_t row_begin, int64_t row_end, int64_t c0, int64_t n,
                       void* scratch);
  void (*copy_stats[2])(const void* args, int64_t row_begin, int64_t row_end);
};

#if defined(AVO_ISA_NAMESPACE)
// ---- the vectors of one instruction set ---------------------------------------------------------
#include "../../avo_ops/csrc/cpu/finish.h"
#include "../../avo_ops/csrc/cpu/math.h"
#include "../../avo_ops/csrc/cpu/rows.h"
#include "../../avo_ops/csrc/cpu/staging.h"

namespace AVO_ISA_NAMESPACE {
namespace {

template <class T>
AVO_INLINE T m_erfc(T z) {
  return m_erfc(z, m_exp_neg_sq(z));
}
template <class T>
AVO_INLINE T m_ndtr(T x) {
  return m_ndtr(x, m_exp_neg_half_sq(x));
}
template <class T>
AVO_INLINE T m_x_ndtr(T x) {
  return m_x_ndtr(x, m_exp_neg_half_sq(x));
}
template <class T>
AVO_INLINE T m_sigmoid_rest(T x) {
  return m_sigmoid_rest(x, m_sigmoid(x));
}

template <class C>
void unary(int function, const C* x, C* y, int64_t n) {
  switch (function) {
#define MATH_ROW(name)                                                                                       \
  case kMath_##name:                                                                                         \
    return sweep<C>(0, n, [&](int64_t c, auto part) { part.store(y + c, m_##name(part.load(x + c))); });
    MATH_UNARY(MATH_ROW)
#undef MATH_ROW
  }
}

template <class C>
C scalar(int function, C x) {
  switch (function) {
#define MATH_ROW(name)                                                                                       \
  case kMath_##name: return m_##name(x);
    MATH_UNARY(MATH_ROW)
#undef MATH_ROW
  }
  return C(0);
}

template <class T>
AVO_INLINE T apply(int function, T a, T b, T c) {
  switch (function) {
    case kPow: return m_pow(a, b);
    case kFmod: return m_fmod(a, b);
    case kAtan2: return m_atan2(a, b);
    case kHypot: return m_hypot(a, b);
    case kMax: return m_max(a, b);
    case kMin: return m_min(a, b);
    case kFma: return m_fma(a, b, c);
    case kWhereLt: return m_where(m_and(m_lt(a, b), m_not(m_ge(a, b))), c, -c);
    case kWhereLe: return m_where(m_or(m_le(a, b), m_eq(a, b)), c, -c);
    case kWhereGt: return m_where(m_gt(a, b), c, -c);
    case kWhereGe: return m_where(m_ge(a, b), c, -c);
    case kWhereEq: return m_where(m_eq(a, b), c, -c);
    default: return m_where(m_ne(a, b), c, -c);
  }
}
template <class C>
void ternary(int function, const C* a, const C* b, const C* c, C* y, int64_t n) {
  sweep<C>(0, n, [&](int64_t i, auto part) {
    part.store(y + i, apply(function, part.load(a + i), part.load(b + i), part.load(c + i)));
  });
}
template <class C>
C scalar_ternary(int function, C a, C b, C c) {
  return apply(function, a, b, c);
}

template <class C>
C reduce(int function, C start, const C* x, int64_t n) {
  Vec<C> v(start);
  switch (function) {
    case kSum:
      sweep<C>(0, n, [&](int64_t c, auto part) { v = part.sum(v, part.load(x + c)); });
      return hsum(v);
    case kAmax:
      sweep<C>(0, n, [&](int64_t c, auto part) { v = part.amax(v, part.load(x + c)); });
      return hamax(v);
    default:
      sweep<C>(0, n, [&](int64_t c, auto part) { v = part.amin(v, part.load(x + c)); });
      return hamin(v);
  }
}

template <class C>
void copy_rows(const void* args, int64_t row_begin, int64_t row_end, int64_t c0, int64_t n, void* scratch) {
  const AvoCpuArgs* a = (const AvoCpuArgs*)args;
  for (int64_t row = row_begin; row < row_end; ++row) {
    const C* x = load_row<C>(a, 0, row, c0, n, (C *)scratch);
    C* y = open_row<C>(a, 1, row, c0, n, (C *)scratch + row_pitch<C>(n));
    sweep<C>(0, n, [&](int64_t c, auto part) { part.store(y + c, part.load(x + c)); });
    close_row<C>(a, 1, row, c0, n, y);
  }
}
template <class C>
void copy_stats(const void* args, int64_t row_begin, int64_t row_end) {
  const AvoCpuArgs* a = (const AvoCpuArgs*)args;
  for (int64_t row = row_begin; row < row_end; ++row) store_stat<C>(a, 1, row, load_stat<C>(a, 0, row));
}

template <class C>
constexpr MathTable<C> kTable = {unary<C>, scalar<C>, ternary<C>, scalar_ternary<C>, reduce<C>};
const MathImplementation implementation = {kTable<float>,
                                           kTable<double>,
                                           {copy_rows<float>, copy_rows<double>},
                                           {copy_stats<float>, copy_stats<double>}};

}  // namespace

extern "C" const MathImplementation* AVO_PASTE(math_driver_, AVO_ISA_SUFFIX)() { return &implementation; }

}  // namespace AVO_ISA_NAMESPACE

#elif defined(AVO_EMULATOR)
// ---- the host twin of the device functions, at the accuracy MATH_ACCURACY -----------------------
#include "../../avo_ops/csrc/device/math.cuh"

namespace {

using A = MATH_ACCURACY;

template <class C>
C scalar(int function, C x) {
  switch (function) {
    case kMath_exp: return m_exp<A>(x);
    case kMath_sigmoid: return m_sigmoid<A>(x);
    case kMath_x_sigmoid: return m_x_sigmoid<A>(x);
    case kMath_exp_neg_sq: return m_exp_neg_sq<A>(x);
    case kMath_erfc: return m_erfc<A>(x, m_exp_neg_sq<A>(x));
    case kMath_exp_neg_half_sq: return m_exp_neg_half_sq<A>(x);
    case kMath_ndtr: return m_ndtr<A>(x, m_exp_neg_half_sq<A>(x));
    case kMath_x_ndtr: return m_x_ndtr<A>(x, m_exp_neg_half_sq<A>(x));
    // For 16-bit results it is 1 - s as it stands.
    case kMath_sigmoid_rest: return m_sigmoid_rest(x, m_sigmoid(x));
#define MATH_ROW(name)                                                                                       \
  case kMath_##name: return m_##name(x);
    MATH_EXACT(MATH_ROW)
#undef MATH_ROW
  }
  return C(0);
}
template <class C>
void unary(int function, const C* x, C* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = scalar(function, x[i]);
}
template <class C>
C scalar_ternary(int function, C a, C b, C c) {
  switch (function) {
    case kPow: return m_pow(a, b);
    case kFmod: return m_fmod(a, b);
    case kAtan2: return m_atan2(a, b);
    case kHypot: return m_hypot(a, b);
    case kMax: return m_max(a, b);
    case kMin: return m_min(a, b);
    case kFma: return m_fma(a, b, c);
    case kWhereLt: return m_where(m_and(m_lt(a, b), m_not(m_ge(a, b))), c, -c);
    case kWhereLe: return m_where(m_or(m_le(a, b), m_eq(a, b)), c, -c);
    case kWhereGt: return m_where(m_gt(a, b), c, -c);
    case kWhereGe: return m_where(m_ge(a, b), c, -c);
    case kWhereEq: return m_where(m_eq(a, b), c, -c);
    default: return m_where(m_ne(a, b), c, -c);
  }
}
template <class C>
void ternary(int function, const C* a, const C* b, const C* c, C* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = scalar_ternary(function, a[i], b[i], c[i]);
}
template <class C>
constexpr MathTable<C> kTable = {unary<C>, scalar<C>, ternary<C>, scalar_ternary<C>, nullptr};
const MathImplementation implementation = {kTable<float>, kTable<double>, {}, {}};

}  // namespace

#define MATH_PASTE_(a, b) a##b
#define MATH_PASTE(a, b) MATH_PASTE_(a, b)
extern "C" const MathImplementation* MATH_PASTE(math_driver_, MATH_ACCURACY)() { return &implementation; }

#else
// ---- sweeps against a wider type ----------------------------------------------------------------
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

extern "C" const MathImplementation* math_driver_base();
extern "C" const MathImplementation* math_driver_v3();
extern "C" const MathImplementation* math_driver_v4();
extern "C" const MathImplementation* math_driver_Fine();
extern "C" const MathImplementation* math_driver_Coarse();
extern "C" const MathImplementation* math_driver_Rough();

namespace {

constexpr int kImplementations = 6, kBlock = 1024;

// The implementations by number: base, v3, v4, the device's Fine, Coarse and Rough; null where this machine cannot run
// one.
const MathImplementation* implementation(int index) {
  const bool v3 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  switch (index) {
    case 0: return math_driver_base();
    case 1: return v3 ? math_driver_v3() : nullptr;
    case 2: return v4 ? math_driver_v4() : nullptr;
    case 3: return math_driver_Fine();
    case 4: return math_driver_Coarse();
    default: return math_driver_Rough();
  }
}

// The functions in W: double for float's, long double for double's.
template <class W>
W reference(int function, W x) {
  switch (function) {
    case kMath_neg: return -x;
    case kMath_abs: return std::fabs(x);
    case kMath_sign: return W(x > 0) - W(x < 0);
    case kMath_exp: return std::exp(x);
    case kMath_expm1: return std::expm1(x);
    case kMath_log: return std::log(x);
    case kMath_log1p: return std::log1p(x);
    case kMath_sqrt: return std::sqrt(x);
    case kMath_rsqrt: return 1 / std::sqrt(x);
    case kMath_recip: return 1 / x;
    case kMath_sigmoid: return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
    case kMath_x_sigmoid: return x * (x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)));
    case kMath_tanh: return std::tanh(x);
    case kMath_erf: return std::erf(x);
    case kMath_sin: return std::sin(x);
    case kMath_cos: return std::cos(x);
    case kMath_floor: return std::floor(x);
    case kMath_round: return std::nearbyint(x);
    case kMath_trunc: return std::trunc(x);
    case kMath_exp2: return std::exp2(x);
    case kMath_tan: return std::tan(x);
    case kMath_asin: return std::asin(x);
    case kMath_acos: return std::acos(x);
    case kMath_atan: return std::atan(x);
    case kMath_sinh: return std::sinh(x);
    case kMath_cosh: return std::cosh(x);
    case kMath_asinh: return std::asinh(x);
    case kMath_acosh: return std::acosh(x);
    case kMath_atanh: return std::atanh(x);
    case kMath_lgamma: return std::lgamma(x);
    case kMath_sigmoid_rest: return x > 0 ? std::exp(-x) / (1 + std::exp(-x)) : 1 / (1 + std::exp(x));
    case kMath_exp_neg_sq: return std::exp(-x * x);
    case kMath_exp_neg_half_sq: return std::exp(-x * x / 2);
    case kMath_ndtr: return std::erfc(-x * W(M_SQRT1_2l)) / 2;
    case kMath_x_ndtr: return std::isinf(x) ? std::max(x, W(-0.0)) : x * (std::erfc(-x * W(M_SQRT1_2l)) / 2);
    default: return std::erfc(x);
  }
}

// The error of y in ulp of C at the true value r, infinity standing for the power of two that float overflows
// to.
template <class C, class W>
double ulps(C y, W r) {
  using Limits = std::numeric_limits<C>;
  if (std::isnan(y) || std::isnan(r)) return std::isnan(y) && std::isnan(r) ? 0 : INFINITY;
  const W top = std::ldexp(W(1), Limits::max_exponent);
  const W got = std::isinf(y) ? std::copysign(top, W(y)) : W(y);
  const W want = std::fabs(r) > top ? std::copysign(top, r) : r;
  int exponent = want == 0 ? Limits::min_exponent - 1 : std::ilogb(want);
  if (exponent < Limits::min_exponent - 1) exponent = Limits::min_exponent - 1;
  if (exponent > Limits::max_exponent - 1) exponent = Limits::max_exponent - 1;
  return double(std::ldexp(std::fabs(got - want), Limits::digits - 1 - exponent));
}

template <class C>
const MathTable<C>& table(const MathImplementation* m);
template <>
const MathTable<float>& table<float>(const MathImplementation* m) {
  return m->f32;
}
template <>
const MathTable<double>& table<double>(const MathImplementation* m) {
  return m->f64;
}

}  // namespace

extern "C" {

// What a sweep found for one implementation.
struct MathErrors {
  double normal;    // largest error, in ulp, where the true value is at least the smallest normal number
  double denormal;  // and where it is below
  double normal_at, denormal_at;
  int64_t scalar_differs;  // values whose scalar function has other bits than the vector's lane
  int64_t count;
};

const MathImplementation* math_implementation(int index) { return implementation(index); }
int math_function(const char* name) {
#define MATH_ROW(row)                                                                                        \
  if (!std::strcmp(name, #row)) return kMath_##row;
  MATH_UNARY(MATH_ROW)
#undef MATH_ROW
  return -1;
}
}

namespace {

template <class C, class W>
void measure(int function, const C* x, int n, MathErrors* errors) {
  W want[kBlock];
  C got[kBlock];
  for (int i = 0; i < n; ++i) want[i] = reference<W>(function, W(x[i]));
  for (int m = 0; m < kImplementations; ++m) {
    const MathImplementation* tested = implementation(m);
    if (!tested) continue;
    table<C>(tested).unary(function, x, got, n);
    MathErrors& e = errors[m];
    for (int i = 0; i < n; ++i) {
      const double error = ulps<C, W>(got[i], want[i]);
      const bool tiny = std::fabs(want[i]) < W(std::numeric_limits<C>::min());
      double& most = tiny ? e.denormal : e.normal;
      if (error > most) {
        most = error;
        (tiny ? e.denormal_at : e.normal_at) = x[i];
      }
      ++e.count;
      if (i % 64 == e.count / kBlock % 64) {
        const C one = table<C>(tested).scalar(function, x[i]);
        const bool same = std::memcmp(&one, &got[i], sizeof(C)) == 0 || (one != one && got[i] != got[i]);
        e.scalar_differs += !same;
      }
    }
  }
}

}  // namespace

extern "C" {

// Floats with the bit patterns first, first + stride, ..., of count, against double.
void math_sweep_f32(int function, uint64_t first, uint64_t stride, uint64_t count, MathErrors* errors) {
  float x[kBlock];
  int filled = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const uint32_t bits = uint32_t(first + i * stride);
    std::memcpy(&x[filled++], &bits, 4);
    if (filled == kBlock || i + 1 == count) {
      measure<float, double>(function, x, filled, errors);
      filled = 0;
    }
  }
}

// Doubles, half of them with spread bit patterns, half evenly in [-limit, limit], against long double.
void math_sweep_f64(int function, double limit, uint64_t count, MathErrors* errors) {
  double x[kBlock];
  int filled = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t bits = i * 0x9e3779b97f4a7c15u;
    std::memcpy(&x[filled], &bits, 8);
    if (i % 2) x[filled] = (double(bits >> 11) * 0x1p-52 - 1) * limit;
    if (++filled == kBlock || i + 1 == count) {
      measure<double, long double>(function, x, filled, errors);
      filled = 0;
    }
  }
}
}
#endif

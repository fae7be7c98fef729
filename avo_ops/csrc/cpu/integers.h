// Integers: 16 lanes of 64 bits whatever their dtype, and operands of integers and bools, which are read and written
// where they lie.
#pragma once

#include "rows.h"

namespace AVO_ISA_NAMESPACE {
namespace {

#define AVO_WHOLE AVO_INLINE
#include "../common/integers.h"
#undef AVO_WHOLE

// As many lanes of a type as a register has of 64 bits.
template <class T> struct FewOf {
  static constexpr int kPer = AVO_REGISTER_BYTES / 8;
  typedef T type __attribute__((vector_size(kPer * sizeof(T))));
};
template <class T> using Few = typename FewOf<T>::type;
template <class T> AVO_INLINE Few<T> few_at(const void *p) {
  Few<T> out;
  __builtin_memcpy(&out, p, sizeof(out));
  return out;
}

#if AVO_AVX512 || AVO_AVX2
AVO_INLINE __m128i load_16_bytes(const void *p) { return _mm_loadu_si128((const __m128i *)p); }
AVO_INLINE __m256i load_32_bytes(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
#endif

// Registers of 64 bits from lanes in memory, and the other way: g++ converts vectors of narrow lanes one by one.
template <class T> AVO_INLINE IntD widened(const T *lanes) { return __builtin_convertvector(few_at<T>(lanes), IntD); }
template <class T> AVO_INLINE void store_narrowed(T *lanes, IntD v) {
  const Few<T> few = __builtin_convertvector(v, Few<T>);
  __builtin_memcpy(lanes, &few, sizeof(few));
}
#if AVO_AVX512
#define AVO_WIDENED(T, name, load)                                                                                     \
  template <> AVO_INLINE IntD widened<T>(const T *lanes) {                                                             \
    return (IntD)_mm512_maskz_##name(__mmask8(-1), load((const void *)lanes));                                         \
  }
AVO_WIDENED(uint8_t, cvtepu8_epi64, _mm_loadu_si64)
AVO_WIDENED(int8_t, cvtepi8_epi64, _mm_loadu_si64)
AVO_WIDENED(int16_t, cvtepi16_epi64, load_16_bytes)
AVO_WIDENED(int32_t, cvtepi32_epi64, load_32_bytes)
template <class T> AVO_INLINE void store_bytes_narrowed(T *lanes, IntD v) {
  _mm512_mask_cvtepi64_storeu_epi8(lanes, __mmask8(-1), (__m512i)v);
}
template <> AVO_INLINE void store_narrowed<uint8_t>(uint8_t *lanes, IntD v) { store_bytes_narrowed(lanes, v); }
template <> AVO_INLINE void store_narrowed<int8_t>(int8_t *lanes, IntD v) { store_bytes_narrowed(lanes, v); }
template <> AVO_INLINE void store_narrowed<int16_t>(int16_t *lanes, IntD v) {
  _mm512_mask_cvtepi64_storeu_epi16(lanes, __mmask8(-1), (__m512i)v);
}
template <> AVO_INLINE void store_narrowed<int32_t>(int32_t *lanes, IntD v) {
  _mm512_mask_cvtepi64_storeu_epi32(lanes, __mmask8(-1), (__m512i)v);
}
#elif AVO_AVX2
#define AVO_WIDENED(T, name, load)                                                                                     \
  template <> AVO_INLINE IntD widened<T>(const T *lanes) { return (IntD)_mm256_##name(load((const void *)lanes)); }
AVO_WIDENED(uint8_t, cvtepu8_epi64, _mm_loadu_si32)
AVO_WIDENED(int8_t, cvtepi8_epi64, _mm_loadu_si32)
AVO_WIDENED(int16_t, cvtepi16_epi64, _mm_loadu_si64)
AVO_WIDENED(int32_t, cvtepi32_epi64, load_16_bytes)
#endif
#undef AVO_WIDENED

struct Ints {
  static constexpr int kPer = AVO_REGISTER_BYTES / 8, kRegs = kLanes / kPer;
  IntD r[kRegs];

  Ints() = default;
  AVO_INLINE Ints(int64_t x) {
    repeat<kRegs>([&](auto i) AVO_LAMBDA { r[i] = splat(x); });
  }
  // From lanes of any type.
  template <class T> static AVO_INLINE Ints load(const T *lanes) {
    Ints out;
    repeat<kRegs>([&](auto i) AVO_LAMBDA { out.r[i] = widened(lanes + i * kPer); });
    return out;
  }
  template <class T> AVO_INLINE void store(T *lanes) const {
    repeat<kRegs>([&](auto i) AVO_LAMBDA { store_narrowed(lanes + i * kPer, r[i]); });
  }
};

AVO_INLINE int64_t lane_at(const Ints &v, int i) {
  int64_t lane;
  __builtin_memcpy(&lane, (const char *)v.r + i * sizeof(lane), sizeof(lane));
  return lane;
}

// f on the registers, without a sign: what overflows wraps around.
template <class F, class... I> AVO_INLINE Ints each_unsigned(const F &f, const I &...v) {
  Ints out;
  repeat<Ints::kRegs>([&](auto i) AVO_LAMBDA { out.r[i] = (IntD)f((UintD)v.r[i]...); });
  return out;
}
template <class F, class... I> AVO_INLINE Ints each_signed(const F &f, const I &...v) {
  Ints out;
  repeat<Ints::kRegs>([&](auto i) AVO_LAMBDA { out.r[i] = f(v.r[i]...); });
  return out;
}
// f on the lanes one by one, for what has no vector instruction. A loop: unrolled, divisions took seconds to compile.
template <class F, class... I> AVO_INLINE Ints each_lane(const F &f, const I &...v) {
  Ints out;
#pragma GCC unroll 4
  for (int i = 0; i < kLanes; ++i) {
    const int64_t lane = f(lane_at(v, i)...);
    __builtin_memcpy((char *)out.r + i * sizeof(lane), &lane, sizeof(lane));
  }
  return out;
}

AVO_INLINE Ints m_iadd(Ints a, Ints b) {
  return each_unsigned([](auto x, auto y) AVO_LAMBDA { return x + y; }, a, b);
}
AVO_INLINE Ints m_isub(Ints a, Ints b) {
  return each_unsigned([](auto x, auto y) AVO_LAMBDA { return x - y; }, a, b);
}
AVO_INLINE Ints m_imul(Ints a, Ints b) {
  return each_unsigned([](auto x, auto y) AVO_LAMBDA { return x * y; }, a, b);
}
AVO_INLINE Ints m_ineg(Ints a) {
  return each_unsigned([](auto x) AVO_LAMBDA { return -x; }, a);
}
AVO_INLINE Ints m_iand(Ints a, Ints b) {
  return each_unsigned([](auto x, auto y) AVO_LAMBDA { return x & y; }, a, b);
}
AVO_INLINE Ints m_ior(Ints a, Ints b) {
  return each_unsigned([](auto x, auto y) AVO_LAMBDA { return x | y; }, a, b);
}
AVO_INLINE Ints m_ixor(Ints a, Ints b) {
  return each_unsigned([](auto x, auto y) AVO_LAMBDA { return x ^ y; }, a, b);
}
AVO_INLINE Ints m_inot(Ints a) {
  return each_unsigned([](auto x) AVO_LAMBDA { return ~x; }, a);
}
AVO_INLINE Ints m_imax(Ints a, Ints b) {
  return each_signed([](auto x, auto y) AVO_LAMBDA { return x > y ? x : y; }, a, b);
}
AVO_INLINE Ints m_imin(Ints a, Ints b) {
  return each_signed([](auto x, auto y) AVO_LAMBDA { return x < y ? x : y; }, a, b);
}
AVO_INLINE Ints m_iabs(Ints a) { return m_imax(a, m_ineg(a)); }
AVO_INLINE Ints m_isign(Ints a) {
  return each_signed([](auto x) AVO_LAMBDA { return (x < 0) - (x > 0); }, a); // a lane that holds is -1
}
AVO_INLINE Ints m_ishl(Ints a, Ints b, Ints bits) {
  return each_lane([](auto x, auto y, auto n) AVO_LAMBDA { return m_ishl(x, y, n); }, a, b, bits);
}
AVO_INLINE Ints m_ishr(Ints a, Ints b, Ints bits) {
  return each_lane([](auto x, auto y, auto n) AVO_LAMBDA { return m_ishr(x, y, n); }, a, b, bits);
}
// By one number, which the compiler knows: divisions become multiplications.
AVO_INLINE Ints m_ishl(Ints a, int64_t b, int64_t bits) {
  if (b < 0 || b >= bits) return Ints(int64_t(0));
  return each_unsigned([b](auto x) AVO_LAMBDA { return x << b; }, a);
}
AVO_INLINE Ints m_ishr(Ints a, int64_t b, int64_t bits) {
  const int64_t n = b < 0 || b >= bits ? 63 : b;
  return each_signed([n](auto x) AVO_LAMBDA { return x >> n; }, a);
}
#define AVO_WHOLE_DIVISION(name)                                                                                       \
  AVO_INLINE Ints name(Ints a, Ints b) {                                                                               \
    return each_lane([](auto x, auto y) AVO_LAMBDA { return name(x, y); }, a, b);                                      \
  }                                                                                                                    \
  AVO_INLINE Ints name(Ints a, int64_t b) {                                                                            \
    return each_lane([b](auto x) AVO_LAMBDA { return name(x, b); }, a);                                                \
  }
AVO_WHOLE_DIVISION(m_idiv)
AVO_WHOLE_DIVISION(m_irem)
AVO_WHOLE_DIVISION(m_imod)
AVO_WHOLE_DIVISION(m_ifloordiv)
#undef AVO_WHOLE_DIVISION
AVO_INLINE Ints m_wrap_u8(Ints a) {
  return each_unsigned([](auto x) AVO_LAMBDA { return x & 0xff; }, a);
}
template <int kBits> AVO_INLINE Ints wrapped(Ints a) {
  return each_signed([](auto x) AVO_LAMBDA { return (IntD)((UintD)x << (64 - kBits)) >> (64 - kBits); }, a);
}
AVO_INLINE Ints m_wrap_i8(Ints a) { return wrapped<8>(a); }
AVO_INLINE Ints m_wrap_i16(Ints a) { return wrapped<16>(a); }
AVO_INLINE Ints m_wrap_i32(Ints a) { return wrapped<32>(a); }

// ---- beside float and double: registers of half as many, or of as many lanes --------------------

template <class T, int... I> AVO_INLINE auto both(Few<T> low, Few<T> high, Indices<I...>) {
  return __builtin_shufflevector(low, high, I...);
}
template <class T> AVO_INLINE auto both(Few<T> low, Few<T> high) {
  return both<T>(low, high, Indices<__integer_pack(2 * Ints::kPer)...>{});
}

template <class C> AVO_INLINE Mask<C> mask_of(Mask<double> mask) {
  if constexpr (sizeof(C) == 8) {
    return mask;
  } else {
    Mask<C> out;
    repeat<Mask<C>::kRegs>([&](auto i) AVO_LAMBDA {
      out.r[i] = (IntF)both<int32_t>(__builtin_convertvector(mask.r[2 * i], Few<int32_t>),
                                     __builtin_convertvector(mask.r[2 * i + 1], Few<int32_t>));
    });
    return out;
  }
}
#define AVO_WHOLE_COMPARISON(name, expression)                                                                         \
  template <class C> AVO_INLINE Mask<C> name(Ints a, Ints b) {                                                         \
    Mask<double> out;                                                                                                  \
    repeat<Ints::kRegs>([&](auto i) AVO_LAMBDA { out.r[i] = a.r[i] expression b.r[i]; });                              \
    return mask_of<C>(out);                                                                                            \
  }
AVO_WHOLE_COMPARISON(m_ilt, <)
AVO_WHOLE_COMPARISON(m_ile, <=)
AVO_WHOLE_COMPARISON(m_ieq, ==)
AVO_WHOLE_COMPARISON(m_ine, !=)
#undef AVO_WHOLE_COMPARISON

AVO_INLINE Ints m_iwhere(Mask<double> mask, Ints a, Ints b) {
  repeat<Ints::kRegs>([&](auto i) AVO_LAMBDA { b.r[i] = mask.r[i] ? a.r[i] : b.r[i]; });
  return b;
}
AVO_INLINE Ints m_iwhere(Mask<float> mask, Ints a, Ints b) {
  Mask<double> wide;
  repeat<Ints::kRegs>([&](auto i) AVO_LAMBDA {
    wide.r[i] = __builtin_convertvector(few_at<int32_t>((const int32_t *)mask.r + i * Ints::kPer), IntD);
  });
  return m_iwhere(wide, a, b);
}

template <class C> AVO_INLINE Vec<C> m_to_math(Ints a) {
  Vec<C> out;
  if constexpr (sizeof(C) == 8) {
    repeat<Ints::kRegs>([&](auto i) AVO_LAMBDA { out.r[i] = __builtin_convertvector(a.r[i], RegD); });
  } else {
    repeat<Vec<C>::kRegs>([&](auto i) AVO_LAMBDA {
      out.r[i] = (RegF)both<float>(__builtin_convertvector(a.r[2 * i], Few<float>),
                                   __builtin_convertvector(a.r[2 * i + 1], Few<float>));
    });
  }
  return out;
}
template <class C> AVO_INLINE Ints m_to_whole(Vec<C> v) {
  C lanes[kLanes];
  v.store(lanes);
  Ints out;
  repeat<Ints::kRegs>([&](auto i) AVO_LAMBDA {
    repeat<Ints::kPer>([&](auto j) AVO_LAMBDA { out.r[i][int(j)] = m_to_whole(lanes[i * Ints::kPer + j]); });
  });
  return out;
}

// ---- operands -----------------------------------------------------------------------------------

AVO_INLINE int lanes_of(Whole) { return kLanes; }
AVO_INLINE int lanes_of(Tail part) { return part.n; }

// Where the columns from c0 on of a row lie.
template <class T> struct IntegersOfRow {
  T *const data;
  const int64_t first, stride, run, run_stride;

  AVO_INLINE IntegersOfRow(const AvoCpuArgs *a, int operand, int64_t row, int64_t c0)
      : data(a->operands[operand].data ? (T *)a->operands[operand].data + row_offset(a, a->operands[operand], row)
                                       : nullptr),
        first(c0), stride(a->operands[operand].col_stride), run(a->operands[operand].run),
        run_stride(a->operands[operand].run_stride) {}
  AVO_INLINE IntegersOfRow(const AvoCpuArgs *a, int operand, int64_t row, const RowPanel &)
      : IntegersOfRow(a, operand, row, 0) {}

  AVO_INLINE T *at(int64_t c) const {
    c += first;
    return data + (run ? c % run * stride + c / run * run_stride : c * stride);
  }
  template <class P> AVO_INLINE bool lies_ready(P part) const {
    return stride == 1 && !run && lanes_of(part) == kLanes;
  }
  // 16 lanes, 0 in those that do not exist: where they lie, or in a place of their own.
  template <class P> AVO_INLINE const T *lanes(int64_t c, P part, T (&own)[kLanes]) const {
    if (lies_ready(part)) return data + first + c;
    const int n = lanes_of(part);
    for (int i = 0; i < kLanes; ++i) own[i] = i < n ? *at(c + i) : T(0);
    return own;
  }
  template <class P> AVO_INLINE Ints load(int64_t c, P part) const {
    T own[kLanes];
    return lies_ready(part) ? Ints::load(data + first + c) : Ints::load(lanes(c, part, own));
  }
  // The same as numbers of the math.
  template <class C, class P> AVO_INLINE Vec<C> numbers(int64_t c, P part) const {
    if constexpr (sizeof(T) == 8) {
      return m_to_math<C>(load(c, part));
    } else {
      T own[kLanes];
      const T *found = lanes(c, part, own);
      C out[kLanes];
      for (int i = 0; i < kLanes; ++i) out[i] = C(found[i]);
      return Vec<C>::load(out);
    }
  }
  template <class P> AVO_INLINE void store(int64_t c, P part, Ints v) const {
    if (!data) return;
    if (lies_ready(part)) return v.store(data + first + c);
    T stored[kLanes];
    v.store(stored);
    for (int i = 0; i < lanes_of(part); ++i) *at(c + i) = stored[i];
  }
};

AVO_INLINE void store_whole_number(const AvoCpuArgs *a, int operand, int64_t row, int64_t value) {
  const AvoOperand &target = a->operands[operand];
  if (target.data) ((int64_t *)target.data)[row_offset(a, target, row)] = value;
}

// ---- reductions ---------------------------------------------------------------------------------

#define AVO_WHOLE_REDUCTION(name, op)                                                                                  \
  AVO_INLINE Ints m_##name(Whole, Ints so_far, Ints v) { return op(so_far, v); }                                       \
  AVO_INLINE Ints m_##name(Tail part, Ints so_far, Ints v) {                                                           \
    return m_iwhere(part.mask<double>(), op(so_far, v), so_far);                                                       \
  }                                                                                                                    \
  AVO_INLINE int64_t h##name(Ints v) {                                                                                 \
    int64_t lanes[kLanes];                                                                                             \
    v.store(lanes);                                                                                                    \
    for (int i = 1; i < kLanes; ++i) lanes[0] = op(lanes[0], lanes[i]);                                                \
    return lanes[0];                                                                                                   \
  }
AVO_WHOLE_REDUCTION(isum, m_iadd)
AVO_WHOLE_REDUCTION(iprod, m_imul)
AVO_WHOLE_REDUCTION(iamax, m_imax)
AVO_WHOLE_REDUCTION(iamin, m_imin)
#undef AVO_WHOLE_REDUCTION

} // namespace
} // namespace AVO_ISA_NAMESPACE

// Rows of operands of any dtype and any strides, as unit-stride runs of the compute type C.
//
// A row that already is one is used where it lies; any other is converted into, or out of, a row buffer of
// the kernel's scratch. Stores round to nearest, ties to even, and keep NaN. Double goes to the 16-bit types
// by way of float, as torch's own casts do.
#pragma once

#include "abi.h"
#include "vec.h"

namespace AVO_ISA_NAMESPACE {
namespace {

struct F16 {
  uint16_t bits;
};
struct Bf16 {
  uint16_t bits;
};

struct E4m3 {
  uint8_t bits;
};
struct Int8 {
  int8_t value;
};

template <class T> constexpr int32_t kDtype = -1;
template <> constexpr int32_t kDtype<float> = AVO_F32;
template <> constexpr int32_t kDtype<F16> = AVO_F16;
template <> constexpr int32_t kDtype<Bf16> = AVO_BF16;
template <> constexpr int32_t kDtype<double> = AVO_F64;

// ---- 16 lanes between a dtype and the compute type ----------------------------------------------

#if AVO_AVX512
AVO_INLINE Vec<float> load_as_f32(const Bf16 *p) {
  Vec<float> out;
  out.r[0] = (RegF)((UintF)_mm512_maskz_cvtepu16_epi32(__mmask16(-1), _mm256_loadu_si256((const __m256i *)p)) << 16);
  return out;
}
AVO_INLINE Vec<float> load_as_f32(const F16 *p) {
  Vec<float> out;
  out.r[0] = _mm512_maskz_cvtph_ps(__mmask16(-1), _mm256_loadu_si256((const __m256i *)p));
  return out;
}
AVO_INLINE void store_f32_as(F16 *p, Vec<float> v) {
  _mm256_storeu_si256((__m256i *)p, _mm512_maskz_cvtps_ph(__mmask16(-1), v.r[0], _MM_FROUND_TO_NEAREST_INT));
}
AVO_INLINE void store_low_halves(void *p, UintF (&words)[1]) {
  _mm256_storeu_si256((__m256i *)p, _mm512_maskz_cvtepi32_epi16(__mmask16(-1), (__m512i)words[0]));
}
AVO_INLINE void load_bytes(const void *p, UintF (&words)[1]) {
  words[0] = (UintF)_mm512_maskz_cvtepu8_epi32(__mmask16(-1), _mm_loadu_si128((const __m128i *)p));
}
AVO_INLINE void store_bytes(void *p, UintF (&words)[1]) {
  _mm_storeu_si128((__m128i *)p, _mm512_maskz_cvtepi32_epi8(__mmask16(-1), (__m512i)words[0]));
}
AVO_INLINE Vec<double> to_f64(Vec<float> v) {
  Vec<double> out;
  const __m512i bits = (__m512i)v.r[0];
  out.r[0] = _mm512_maskz_cvtps_pd(__mmask8(-1), (__m256)_mm512_maskz_extracti64x4_epi64(__mmask8(-1), bits, 0));
  out.r[1] = _mm512_maskz_cvtps_pd(__mmask8(-1), (__m256)_mm512_maskz_extracti64x4_epi64(__mmask8(-1), bits, 1));
  return out;
}
AVO_INLINE Vec<float> to_f32(Vec<double> v) {
  Vec<float> out;
  const __m256i low = (__m256i)_mm512_maskz_cvtpd_ps(__mmask8(-1), v.r[0]);
  const __m256i high = (__m256i)_mm512_maskz_cvtpd_ps(__mmask8(-1), v.r[1]);
  out.r[0] = (RegF)_mm512_maskz_inserti64x4(__mmask8(-1), _mm512_castsi256_si512(low), high, 1);
  return out;
}
#elif AVO_AVX2
AVO_INLINE Vec<float> load_as_f32(const Bf16 *p) {
  Vec<float> out;
  repeat<2>([&](auto i) AVO_LAMBDA {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p + i));
    out.r[i] = (RegF)_mm256_slli_epi32(wide, 16);
  });
  return out;
}
AVO_INLINE Vec<float> load_as_f32(const F16 *p) {
  Vec<float> out;
  repeat<2>([&](auto i) AVO_LAMBDA { out.r[i] = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p + i)); });
  return out;
}
AVO_INLINE void store_f32_as(F16 *p, Vec<float> v) {
  repeat<2>([&](auto i)
                AVO_LAMBDA { _mm_storeu_si128((__m128i *)p + i, _mm256_cvtps_ph(v.r[i], _MM_FROUND_TO_NEAREST_INT)); });
}
AVO_INLINE void store_low_halves(void *p, UintF (&words)[2]) {
  const __m256i crossed = _mm256_packus_epi32((__m256i)words[0], (__m256i)words[1]);
  _mm256_storeu_si256((__m256i *)p, _mm256_permute4x64_epi64(crossed, _MM_SHUFFLE(3, 1, 2, 0)));
}
AVO_INLINE void load_bytes(const void *p, UintF (&words)[2]) {
  repeat<2>([&](auto i) AVO_LAMBDA {
    words[i] = (UintF)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)((const uint8_t *)p + 8 * i)));
  });
}
AVO_INLINE void store_bytes(void *p, UintF (&words)[2]) {
  const __m256i crossed = _mm256_packus_epi32((__m256i)words[0], (__m256i)words[1]);
  const __m256i halves = _mm256_permute4x64_epi64(crossed, _MM_SHUFFLE(3, 1, 2, 0));
  _mm_storeu_si128((__m128i *)p, _mm_packus_epi16(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1)));
}
AVO_INLINE Vec<double> to_f64(Vec<float> v) {
  Vec<double> out;
  repeat<2>([&](auto i) AVO_LAMBDA {
    out.r[2 * i] = _mm256_cvtps_pd(_mm256_castps256_ps128(v.r[i]));
    out.r[2 * i + 1] = _mm256_cvtps_pd(_mm256_extractf128_ps(v.r[i], 1));
  });
  return out;
}
AVO_INLINE Vec<float> to_f32(Vec<double> v) {
  Vec<float> out;
  repeat<2>([&](auto i) AVO_LAMBDA {
    out.r[i] = _mm256_set_m128(_mm256_cvtpd_ps(v.r[2 * i + 1]), _mm256_cvtpd_ps(v.r[2 * i]));
  });
  return out;
}
#else
AVO_INLINE Vec<float> load_as_f32(const Bf16 *p) {
  Vec<float> out;
  repeat<2>([&](auto i) AVO_LAMBDA {
    const __m128i halves = _mm_loadu_si128((const __m128i *)p + i), zero = _mm_setzero_si128();
    out.r[2 * i] = (RegF)_mm_unpacklo_epi16(zero, halves);
    out.r[2 * i + 1] = (RegF)_mm_unpackhi_epi16(zero, halves);
  });
  return out;
}
// The exponent is moved by 112; 31 (inf, NaN) by as much again; 0 becomes 2^-14 + the fraction, less 2^-14.
AVO_INLINE RegF f16_to_f32(UintF half) {
  const UintF sign = (half & 0x8000u) << 16, size = (half & 0x7fffu) << 13;
  const RegF usual = (RegF)(size + (112u << 23)), special = (RegF)(size + (224u << 23));
  const RegF denormal = (RegF)(size + (113u << 23)) - splat(0x1p-14f);
  const IntF high = (IntF)size >= splat(int32_t(0x0f800000));
  const IntF low = (IntF)size < splat(int32_t(1 << 23));
  return (RegF)((UintF)(high ? special : (low ? denormal : usual)) | sign);
}
AVO_INLINE Vec<float> load_as_f32(const F16 *p) {
  Vec<float> out;
  repeat<2>([&](auto i) AVO_LAMBDA {
    const __m128i halves = _mm_loadu_si128((const __m128i *)p + i), zero = _mm_setzero_si128();
    out.r[2 * i] = f16_to_f32((UintF)_mm_unpacklo_epi16(halves, zero));
    out.r[2 * i + 1] = f16_to_f32((UintF)_mm_unpackhi_epi16(halves, zero));
  });
  return out;
}
AVO_INLINE void store_low_halves(void *p, UintF (&words)[4]) {
  repeat<2>([&](auto i) AVO_LAMBDA { // sign-extended, so that the saturating pack of SSE2 keeps the bits
    const __m128i low = (__m128i)((IntF)(words[2 * i] << 16) >> 16);
    const __m128i high = (__m128i)((IntF)(words[2 * i + 1] << 16) >> 16);
    _mm_storeu_si128((__m128i *)p + i, _mm_packs_epi32(low, high));
  });
}
// Where the result is denormal, adding 0.5 lets the float addition round at 2^-24; elsewhere the rounding
// increment is added to the bits, and its carry runs into the exponent (up to infinity). 65536 and above:
// infinity or NaN.
AVO_INLINE UintF f32_to_f16(RegF x) {
  const UintF bits = (UintF)x, size = bits & 0x7fffffffu, sign = (bits >> 16) & 0x8000u;
  const UintF usual = (size - (112u << 23) + 0xfffu + ((size >> 13) & 1u)) >> 13;
  const UintF denormal = (UintF)((RegF)size + splat(0.5f)) - 0x3f000000u;
  const UintF special = (UintF)((IntF)size > splat(int32_t(0x7f800000)) ? (IntF)(((size >> 13) & 0x3ffu) | 0x7e00u)
                                                                        : splat(int32_t(0x7c00)));
  const IntF high = (IntF)size >= splat(int32_t(143 << 23)), low = (IntF)size < splat(int32_t(113 << 23));
  return (UintF)(high ? (IntF)special : (low ? (IntF)denormal : (IntF)usual)) | sign;
}
AVO_INLINE void store_f32_as(F16 *p, Vec<float> v) {
  UintF words[4];
  repeat<4>([&](auto i) AVO_LAMBDA { words[i] = f32_to_f16(v.r[i]); });
  store_low_halves(p, words);
}
AVO_INLINE void load_bytes(const void *p, UintF (&words)[4]) {
  const __m128i bytes = _mm_loadu_si128((const __m128i *)p), zero = _mm_setzero_si128();
  const __m128i halves[2] = {_mm_unpacklo_epi8(bytes, zero), _mm_unpackhi_epi8(bytes, zero)};
  repeat<2>([&](auto i) AVO_LAMBDA {
    words[2 * i] = (UintF)_mm_unpacklo_epi16(halves[i], zero);
    words[2 * i + 1] = (UintF)_mm_unpackhi_epi16(halves[i], zero);
  });
}
AVO_INLINE void store_bytes(void *p, UintF (&words)[4]) {
  const __m128i low = _mm_packs_epi32((__m128i)words[0], (__m128i)words[1]);
  const __m128i high = _mm_packs_epi32((__m128i)words[2], (__m128i)words[3]);
  _mm_storeu_si128((__m128i *)p, _mm_packus_epi16(low, high));
}
AVO_INLINE Vec<double> to_f64(Vec<float> v) {
  Vec<double> out;
  repeat<4>([&](auto i) AVO_LAMBDA {
    out.r[2 * i] = _mm_cvtps_pd(v.r[i]);
    out.r[2 * i + 1] = _mm_cvtps_pd(_mm_movehl_ps(v.r[i], v.r[i]));
  });
  return out;
}
AVO_INLINE Vec<float> to_f32(Vec<double> v) {
  Vec<float> out;
  repeat<4>([&](auto i)
                AVO_LAMBDA { out.r[i] = _mm_movelh_ps(_mm_cvtpd_ps(v.r[2 * i]), _mm_cvtpd_ps(v.r[2 * i + 1])); });
  return out;
}
#endif

// The bits of x as a bfloat16 in the high half of each word; the low half is of no account.
AVO_INLINE UintF rounded_to_bf16(RegF x) {
  const UintF bits = (UintF)x;
  const UintF rounded = bits + 0x7fffu + ((bits >> 16) & 1u), quiet = bits | 0x400000u;
  return (UintF)(x != x ? (IntF)quiet : (IntF)rounded);
}
AVO_INLINE void store_f32_as(Bf16 *p, Vec<float> v) {
  UintF words[Vec<float>::kRegs];
  repeat<Vec<float>::kRegs>([&](auto i) AVO_LAMBDA { words[i] = rounded_to_bf16(v.r[i]) >> 16; });
  store_low_halves(p, words);
}

// As to_e4m3 and e4m3_to_float of csrc/device/types.cuh, and NaN has the same bits.
AVO_INLINE UintF rounded_to_e4m3(RegF x) {
  const UintF bits = (UintF)x, size = bits & 0x7fffffffu, sign = (bits >> 24) & 0x80u;
  const UintF usual = (size - (120u << 23) + 0x7ffffu + ((size >> 20) & 1u)) >> 20;
  const UintF denormal = (UintF)((RegF)size + splat(16384.0f)) - 0x46800000u;
  const IntF high = (IntF)size >= splat(int32_t(0x43e00000)), low = (IntF)size < splat(int32_t(0x3c800000));
  const IntF number = (high ? splat(int32_t(0x7e)) : (low ? (IntF)denormal : (IntF)usual)) | (IntF)sign;
  return (UintF)(x != x ? splat(int32_t(0x7f)) : number);
}
AVO_INLINE RegF e4m3_to_f32(UintF v) {
  const UintF size = v & 0x7fu, sign = (v & 0x80u) << 24;
  const IntF usual = (IntF)((size << 20) + (120u << 23));
  const IntF denormal = (IntF)(__builtin_convertvector((IntF)size, RegF) * splat(0x1p-9f));
  const IntF number = (IntF)size < splat(int32_t(8)) ? denormal : usual;
  return (RegF)((UintF)((IntF)size == splat(int32_t(0x7f)) ? splat(int32_t(0x7fc00000)) : number) | sign);
}
AVO_INLINE Vec<float> load_as_f32(const E4m3 *p) {
  UintF words[Vec<float>::kRegs];
  load_bytes(p, words);
  Vec<float> out;
  repeat<Vec<float>::kRegs>([&](auto i) AVO_LAMBDA { out.r[i] = e4m3_to_f32(words[i]); });
  return out;
}
AVO_INLINE void store_f32_as(E4m3 *p, Vec<float> v) {
  UintF words[Vec<float>::kRegs];
  repeat<Vec<float>::kRegs>([&](auto i) AVO_LAMBDA { words[i] = rounded_to_e4m3(v.r[i]); });
  store_bytes(p, words);
}
AVO_INLINE Vec<float> load_as_f32(const Int8 *p) {
  UintF words[Vec<float>::kRegs];
  load_bytes(p, words);
  Vec<float> out;
  repeat<Vec<float>::kRegs>([&](auto i)
                                AVO_LAMBDA { out.r[i] = __builtin_convertvector((IntF)(words[i] << 24) >> 24, RegF); });
  return out;
}
// Towards zero, of numbers in [-128, 127]. The instruction makes of NaN a number whose low byte is 0.
AVO_INLINE void store_f32_as(Int8 *p, Vec<float> v) {
  UintF words[Vec<float>::kRegs];
  repeat<Vec<float>::kRegs>([&](auto i)
                                AVO_LAMBDA { words[i] = (UintF) __builtin_convertvector(v.r[i], IntF) & 0xffu; });
  store_bytes(p, words);
}

AVO_INLINE Vec<float> load_as(const float *p, float) { return Vec<float>::load(p); }
AVO_INLINE Vec<float> load_as(const double *p, float) { return to_f32(Vec<double>::load(p)); }
AVO_INLINE Vec<double> load_as(const double *p, double) { return Vec<double>::load(p); }
AVO_INLINE Vec<double> load_as(const float *p, double) { return to_f64(Vec<float>::load(p)); }
template <class T> AVO_INLINE Vec<float> load_as(const T *p, float) { return load_as_f32(p); }
template <class T> AVO_INLINE Vec<double> load_as(const T *p, double) { return to_f64(load_as_f32(p)); }

AVO_INLINE void store_as(float *p, Vec<float> v) { v.store(p); }
AVO_INLINE void store_as(float *p, Vec<double> v) { to_f32(v).store(p); }
AVO_INLINE void store_as(double *p, Vec<double> v) { v.store(p); }
AVO_INLINE void store_as(double *p, Vec<float> v) { to_f64(v).store(p); }
template <class T> AVO_INLINE void store_as(T *p, Vec<float> v) { store_f32_as(p, v); }
template <class T> AVO_INLINE void store_as(T *p, Vec<double> v) { store_f32_as(p, to_f32(v)); }

} // namespace

// ---- what staging.h defines ---------------------------------------------------------------------

// to[i] = the element `offset` + i * col_stride of an operand, converted. `to` has room for whole vectors past n (the
// slack of a row buffer).
AVO_ONCE void stage_in(const AvoOperand &operand, int64_t offset, float *to, int64_t n);
AVO_ONCE void stage_in(const AvoOperand &operand, int64_t offset, double *to, int64_t n);
// The other way.
AVO_ONCE void stage_out(const AvoOperand &operand, int64_t offset, const float *from, int64_t n);
AVO_ONCE void stage_out(const AvoOperand &operand, int64_t offset, const double *from, int64_t n);

// to[r * pitch + c] = the element `offset` + r * row_stride + c * col_stride of an operand, converted, for up to 16
// rows.
AVO_ONCE void panel_in(const AvoOperand &operand, int64_t offset, int64_t row_stride, float *to, int64_t pitch,
                       int64_t rows, int64_t n);
AVO_ONCE void panel_in(const AvoOperand &operand, int64_t offset, int64_t row_stride, double *to, int64_t pitch,
                       int64_t rows, int64_t n);
// The other way.
AVO_ONCE void panel_out(const AvoOperand &operand, int64_t offset, int64_t row_stride, const float *from, int64_t pitch,
                        int64_t rows, int64_t n);
AVO_ONCE void panel_out(const AvoOperand &operand, int64_t offset, int64_t row_stride, const double *from,
                        int64_t pitch, int64_t rows, int64_t n);

// Row `row` of several row dimensions: its digits, the last dimension running fastest.
AVO_ONCE int64_t folded_row_offset(const AvoCpuArgs *a, const AvoOperand &operand, int64_t row);

namespace {

// ---- the rows of a call -------------------------------------------------------------------------

AVO_INLINE int64_t row_offset(const AvoCpuArgs *a, const AvoOperand &operand, int64_t row) {
  return a->row_dims == 1 ? row * operand.row_strides[0] : folded_row_offset(a, operand, row);
}
template <class C> AVO_INLINE bool lies_ready(const AvoOperand &operand, int64_t n) {
  return operand.dtype == kDtype<C> && (operand.col_stride == 1 || n == 1) && operand.run == 0;
}

// Columns [c0, c0 + n) of a row of an input: where they lie if they can be used there, else converted into
// `buffer`.
template <class C>
AVO_INLINE const C *load_row(const AvoCpuArgs *a, int operand, int64_t row, int64_t c0, int64_t n, C *buffer) {
  const AvoOperand &source = a->operands[operand];
  const int64_t offset = row_offset(a, source, row) + c0 * source.col_stride;
  if (lies_ready<C>(source, n)) return (const C *)source.data + offset;
  stage_in(source, offset, buffer, n);
  return buffer;
}

// Where to write columns [c0, c0 + n) of a row of an output; close_row with what this returned then stores
// them. An absent output (null) is written to `buffer` and goes no further.
template <class C>
AVO_INLINE C *open_row(const AvoCpuArgs *a, int operand, int64_t row, int64_t c0, int64_t n, C *buffer) {
  const AvoOperand &target = a->operands[operand];
  if (!target.data || !lies_ready<C>(target, n)) return buffer;
  return (C *)target.data + row_offset(a, target, row) + c0 * target.col_stride;
}
template <class C>
AVO_INLINE void close_row(const AvoCpuArgs *a, int operand, int64_t row, int64_t c0, int64_t n, const C *p) {
  const AvoOperand &target = a->operands[operand];
  if (!target.data || lies_ready<C>(target, n)) return;
  stage_out(target, row_offset(a, target, row) + c0 * target.col_stride, p, n);
}

// The one value that an M-span operand has for a row.
template <class C> AVO_INLINE C load_stat(const AvoCpuArgs *a, int operand, int64_t row) {
  const AvoOperand &source = a->operands[operand];
  const int64_t offset = row_offset(a, source, row);
  if (source.dtype == kDtype<C>) return ((const C *)source.data)[offset];
  C lanes[kLanes];
  stage_in(source, offset, lanes, 1);
  return lanes[0];
}
// The element of one column.
template <class C> AVO_INLINE C load_element(const AvoCpuArgs *a, int operand, int64_t row, int64_t column) {
  C lanes[kLanes];
  return *load_row<C>(a, operand, row, column, 1, lanes);
}
AVO_INLINE int64_t load_whole_number(const AvoCpuArgs *a, int operand, int64_t row) {
  const AvoOperand &source = a->operands[operand];
  const int64_t offset = row_offset(a, source, row);
  return source.dtype == AVO_I32 ? ((const int32_t *)source.data)[offset] : ((const int64_t *)source.data)[offset];
}
template <class C> AVO_INLINE void store_stat(const AvoCpuArgs *a, int operand, int64_t row, C value) {
  const AvoOperand &target = a->operands[operand];
  if (!target.data) return;
  const int64_t offset = row_offset(a, target, row);
  if (target.dtype == kDtype<C>) {
    ((C *)target.data)[offset] = value;
  } else {
    stage_out(target, offset, &value, 1);
  }
}

// ---- rounding -----------------------------------------------------------------------------------------------

AVO_INLINE Vec<float> round_by(Vec<float> v, float) { return v; }
AVO_INLINE Vec<float> round_by(Vec<float> v, Bf16) {
  return each<float>([](auto x) AVO_LAMBDA { return (RegF)(rounded_to_bf16(x) & 0xffff0000u); }, v);
}
template <class T> AVO_INLINE Vec<float> round_by(Vec<float> v, T) {
  alignas(64) T stored[kLanes];
  store_as(stored, v);
  return load_as(stored, float());
}
template <class T> AVO_INLINE Vec<double> round_by(Vec<double> v, T like) { return to_f64(round_by(to_f32(v), like)); }

// The values as an operand of that dtype holds them.
template <class C> AVO_INLINE Vec<C> m_round_to(Vec<C> v, int32_t dtype) {
  switch (dtype) {
  case AVO_F32: return round_by(v, float());
  case AVO_F16: return round_by(v, F16());
  case AVO_BF16: return round_by(v, Bf16());
  case AVO_F8: return round_by(v, E4m3());
  case AVO_I8: return round_by(v, Int8());
  default: return v;
  }
}
template <class C> AVO_INLINE C m_round_to(C v, int32_t dtype) {
  alignas(64) C lanes[16];
  m_round_to(Vec<C>(v), dtype).store(lanes);
  return lanes[0];
}
template <class V> AVO_INLINE V m_round_f32(V v) { return m_round_to(v, AVO_F32); }
template <class V> AVO_INLINE V m_round_f16(V v) { return m_round_to(v, AVO_F16); }
template <class V> AVO_INLINE V m_round_bf16(V v) { return m_round_to(v, AVO_BF16); }
template <class V> AVO_INLINE V m_round_f8(V v) { return m_round_to(v, AVO_F8); }
template <class V> AVO_INLINE V m_round_i8(V v) { return m_round_to(v, AVO_I8); }

// ---- buffers and panels -------------------------------------------------------------------------------------

// Elements from one row of a buffer to the next.
template <class C> AVO_INLINE int64_t row_pitch(int64_t n) {
  constexpr int64_t chunk = 64 / int64_t(sizeof(C));
  return (n + AVO_BUFFER_SLACK + chunk - 1) / chunk * chunk;
}

// The buffers of a kernel of class pointwise: of a block of a row each.
template <class C> struct BlockBuffers {
  C *const scratch;

  AVO_INLINE explicit BlockBuffers(void *memory) : scratch((C *)memory) {}
  AVO_INLINE C *operator()(int index) const { return scratch + index * row_pitch<C>(AVO_POINTWISE_BLOCK); }
};

// Those of class row: of the rows of a panel each.
template <class C> struct RowBuffers {
  C *const scratch;
  const int64_t pitch;

  AVO_INLINE RowBuffers(const AvoCpuArgs *a, void *memory)
      : scratch((C *)memory), pitch(a->panel_rows * row_pitch<C>(a->N)) {}
  AVO_INLINE C *operator()(int index) const { return scratch + index * pitch; }
};

// Rows whose panelled operands are brought in and out together. Where an operand's rows lie side by side, a cache line
// has 16 rows of one column: taken row by row, every line would be fetched 16 times.
struct RowPanel {
  const AvoCpuArgs *a;
  int64_t begin, end, stop;

  AVO_INLINE RowPanel(const AvoCpuArgs *args, int64_t row_begin, int64_t row_end)
      : a(args), begin(row_begin), end(row_begin), stop(row_end) {
    advance();
  }
  AVO_INLINE void advance() {
    begin = end;
    end = stop;
    if (a->panel_rows == 1) return;
    const int64_t size = a->row_sizes[a->row_dims - 1], digit = begin % size;
    int64_t rows = a->panel_rows - digit % a->panel_rows; // to a multiple, where lines are likely to begin
    rows = rows < size - digit ? rows : size - digit;
    end = rows < stop - begin ? begin + rows : stop;
  }
};

template <class C> AVO_INLINE void load_panel(const AvoCpuArgs *a, int operand, const RowPanel &panel, C *buffer) {
  const AvoOperand &source = a->operands[operand];
  if (!source.panelled) return;
  panel_in(source, row_offset(a, source, panel.begin), source.row_strides[a->row_dims - 1], buffer, row_pitch<C>(a->N),
           panel.end - panel.begin, a->N);
}
template <class C>
AVO_INLINE void store_panel(const AvoCpuArgs *a, int operand, const RowPanel &panel, const C *buffer) {
  const AvoOperand &target = a->operands[operand];
  if (!target.panelled) return;
  panel_out(target, row_offset(a, target, panel.begin), target.row_strides[a->row_dims - 1], buffer, row_pitch<C>(a->N),
            panel.end - panel.begin, a->N);
}

// Whole rows: that of a panel, or as above.
template <class C> AVO_INLINE C *row_of_panel(const AvoCpuArgs *a, int64_t row, const RowPanel &panel, C *buffer) {
  return buffer + (row - panel.begin) * row_pitch<C>(a->N);
}
template <class C>
AVO_INLINE const C *load_row(const AvoCpuArgs *a, int operand, int64_t row, const RowPanel &panel, C *buffer) {
  if (a->operands[operand].panelled) return row_of_panel(a, row, panel, buffer);
  return load_row<C>(a, operand, row, 0, a->N, buffer);
}
template <class C>
AVO_INLINE C *open_row(const AvoCpuArgs *a, int operand, int64_t row, const RowPanel &panel, C *buffer) {
  if (a->operands[operand].panelled) return row_of_panel(a, row, panel, buffer);
  return open_row<C>(a, operand, row, 0, a->N, buffer);
}
template <class C>
AVO_INLINE void close_row(const AvoCpuArgs *a, int operand, int64_t row, const RowPanel &, const C *p) {
  if (!a->operands[operand].panelled) close_row<C>(a, operand, row, 0, a->N, p);
}

// ---- column sums --------------------------------------------------------------------------------

// The partial sums `k` of `sums` that chunk `chunk` of the rows adds up.
template <class C> AVO_INLINE C *partial_row(const AvoCpuArgs *a, int64_t chunk, int64_t sums, int64_t k) {
  return (C *)a->partials + (chunk * sums + k) * a->sum_columns;
}
// Zeroes those of the columns [begin, end): of a kernel of class pointwise, which owns those only, or all.
template <class C>
AVO_INLINE void zero_partial(const AvoCpuArgs *a, int64_t chunk, int64_t sums, int64_t k, int64_t begin, int64_t end) {
  __builtin_memset(partial_row<C>(a, chunk, sums, k) + begin, 0, size_t(end - begin) * sizeof(C));
}

} // namespace
} // namespace AVO_ISA_NAMESPACE

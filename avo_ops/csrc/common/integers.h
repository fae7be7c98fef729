// Integers of kernels, for device code and the CPU alike: 64 bits whatever the dtype, which wraps bring back. What
// overflows is computed without a sign, so that nothing is undefined. definitions/primitives.py has the same in torch.
#pragma once

#ifndef AVO_WHOLE
#define AVO_WHOLE static inline
#endif

AVO_WHOLE int64_t m_iadd(int64_t a, int64_t b) { return int64_t(uint64_t(a) + uint64_t(b)); }
AVO_WHOLE int64_t m_isub(int64_t a, int64_t b) { return int64_t(uint64_t(a) - uint64_t(b)); }
AVO_WHOLE int64_t m_imul(int64_t a, int64_t b) { return int64_t(uint64_t(a) * uint64_t(b)); }
AVO_WHOLE int64_t m_ineg(int64_t a) { return int64_t(0 - uint64_t(a)); }
AVO_WHOLE int64_t m_iabs(int64_t a) { return a < 0 ? m_ineg(a) : a; }
AVO_WHOLE int64_t m_isign(int64_t a) { return int64_t(a > 0) - int64_t(a < 0); }
AVO_WHOLE int64_t m_iand(int64_t a, int64_t b) { return a & b; }
AVO_WHOLE int64_t m_ior(int64_t a, int64_t b) { return a | b; }
AVO_WHOLE int64_t m_ixor(int64_t a, int64_t b) { return a ^ b; }
AVO_WHOLE int64_t m_inot(int64_t a) { return ~a; }
AVO_WHOLE int64_t m_imax(int64_t a, int64_t b) { return a > b ? a : b; }
AVO_WHOLE int64_t m_imin(int64_t a, int64_t b) { return a < b ? a : b; }

// Of integers of `bits` bits, as torch's: nothing is left where there are fewer to shift, or a negative number.
AVO_WHOLE int64_t m_ishl(int64_t a, int64_t b, int64_t bits) {
  return b < 0 || b >= bits ? 0 : int64_t(uint64_t(a) << b);
}
AVO_WHOLE int64_t m_ishr(int64_t a, int64_t b, int64_t bits) { return a >> (b < 0 || b >= bits ? 63 : b); }

// Towards zero. By -1 apart, for which the largest quotient overflows, by 0 for lanes that do not exist. 64 bits take
// several times the instructions of 32.
AVO_WHOLE int64_t m_idiv(int64_t a, int64_t b) {
  if (b == -1) return m_ineg(a);
  if (b == 0) return 0;
  return a == int32_t(a) && b == int32_t(b) ? int64_t(int32_t(a) / int32_t(b)) : a / b;
}
AVO_WHOLE int64_t m_irem(int64_t a, int64_t b) { return m_isub(a, m_imul(m_idiv(a, b), b)); }
AVO_WHOLE int64_t m_imod(int64_t a, int64_t b) {
  const int64_t rest = m_irem(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
AVO_WHOLE int64_t m_ifloordiv(int64_t a, int64_t b) {
  const int64_t quotient = m_idiv(a, b), rest = m_isub(a, m_imul(quotient, b));
  return rest != 0 && (rest < 0) != (b < 0) ? quotient - 1 : quotient;
}

AVO_WHOLE int64_t m_wrap_u8(int64_t a) { return uint8_t(a); }
AVO_WHOLE int64_t m_wrap_i8(int64_t a) { return int8_t(a); }
AVO_WHOLE int64_t m_wrap_i16(int64_t a) { return int16_t(a); }
AVO_WHOLE int64_t m_wrap_i32(int64_t a) { return int32_t(a); }

AVO_WHOLE int64_t m_iwhere(bool mask, int64_t a, int64_t b) { return mask ? a : b; }
template <class C> AVO_WHOLE bool m_ilt(int64_t a, int64_t b) { return a < b; }
template <class C> AVO_WHOLE bool m_ile(int64_t a, int64_t b) { return a <= b; }
template <class C> AVO_WHOLE bool m_ieq(int64_t a, int64_t b) { return a == b; }
template <class C> AVO_WHOLE bool m_ine(int64_t a, int64_t b) { return a != b; }
template <class C> AVO_WHOLE C m_to_math(int64_t a) { return C(a); }

constexpr int64_t kLeastInteger = -0x7fffffffffffffff - 1, kMostInteger = 0x7fffffffffffffff;
// Towards zero, of what 64 bits hold; the least integer of all else.
template <class C> AVO_WHOLE int64_t m_to_whole(C a) {
  return a >= C(-0x1p63) && a < C(0x1p63) ? int64_t(a) : kLeastInteger;
}

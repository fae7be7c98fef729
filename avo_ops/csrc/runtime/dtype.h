// The dtypes that kernels know, four for the math, those of integers and bools and one more of 8 bits, and their
// translation from and to torch's dtype codes.
#pragma once

#include <cstdint>
#include <string>

#include "../cpu/abi.h"

namespace avo {

enum class Dtype : int8_t {
  F32 = AVO_F32,
  F16 = AVO_F16,
  BF16 = AVO_BF16,
  F64 = AVO_F64,
  I64 = AVO_I64,
  I32 = AVO_I32,
  F8 = AVO_F8,
  I8 = AVO_I8,
  U8 = AVO_U8,
  I16 = AVO_I16,
  B8 = AVO_B8,
  None = -1
};

inline constexpr int kDtypes = 4; // those of the math, which come first
inline constexpr int kAllDtypes = 11;

inline bool is_integer(Dtype dtype) { return dtype == Dtype::I64 || dtype == Dtype::I32; }

inline int index_of(Dtype dtype) { return static_cast<int>(dtype); }

// Whether operands of span MN that have it keep it whatever the others have.
inline bool is_stored(Dtype dtype) { return index_of(dtype) >= kDtypes; }

inline int64_t size_of(Dtype dtype) {
  if (dtype == Dtype::F64 || dtype == Dtype::I64) return 8;
  if (dtype == Dtype::F32 || dtype == Dtype::I32) return 4;
  return dtype == Dtype::F16 || dtype == Dtype::BF16 || dtype == Dtype::I16 ? 2 : 1;
}

// Short names, as in plan.json: "f32".
const char *short_name(Dtype dtype);
Dtype dtype_of_short_name(const std::string &name);

// The dtype that torch's type promotion gives two floating-point tensors.
inline Dtype promote(Dtype a, Dtype b) {
  if (a == b || b == Dtype::None) return a;
  if (a == Dtype::None) return b;
  return a == Dtype::F64 || b == Dtype::F64 ? Dtype::F64 : Dtype::F32;
}

// A number of 16 bits.
double half_value(Dtype dtype, uint16_t bits);

Dtype dtype_from_torch(int32_t code);
int32_t dtype_to_torch(Dtype dtype);
// "bfloat16", "int64", ... for messages.
std::string torch_dtype_name(int32_t code);

} // namespace avo

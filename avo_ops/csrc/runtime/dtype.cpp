// Translation of dtypes. torch's codes are asked from torch itself, so that no number of its ABI is assumed.
#include "dtype.h"

#include <bit>

#include <torch/csrc/stable/c/shim.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/Half.h>

namespace avo {
namespace {

const char *const kShortNames[kAllDtypes] = {"f32", "f16", "bf16", "f64", "i64", "i32", "f8", "i8", "u8", "i16", "b8"};

struct TorchCodes {
  int32_t of[kAllDtypes] = {aoti_torch_dtype_float32(),       aoti_torch_dtype_float16(), aoti_torch_dtype_bfloat16(),
                            aoti_torch_dtype_float64(),       aoti_torch_dtype_int64(),   aoti_torch_dtype_int32(),
                            aoti_torch_dtype_float8_e4m3fn(), aoti_torch_dtype_int8(),    aoti_torch_dtype_uint8(),
                            aoti_torch_dtype_int16(),         aoti_torch_dtype_bool()};
};

const TorchCodes &codes() {
  static const TorchCodes codes;
  return codes;
}

} // namespace

const char *short_name(Dtype dtype) { return dtype == Dtype::None ? "none" : kShortNames[index_of(dtype)]; }

Dtype dtype_of_short_name(const std::string &name) {
  for (int i = 0; i < kAllDtypes; ++i)
    if (name == kShortNames[i]) return static_cast<Dtype>(i);
  return Dtype::None;
}

double half_value(Dtype dtype, uint16_t bits) {
  if (dtype == Dtype::F16)
    return static_cast<float>(torch::headeronly::Half(bits, torch::headeronly::Half::from_bits()));
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

Dtype dtype_from_torch(int32_t code) {
  const TorchCodes &known = codes();
  for (int i = 0; i < kAllDtypes; ++i)
    if (known.of[i] == code) return static_cast<Dtype>(i);
  return Dtype::None;
}

int32_t dtype_to_torch(Dtype dtype) { return codes().of[index_of(dtype)]; }

std::string torch_dtype_name(int32_t code) {
  const struct {
    int32_t code;
    const char *name;
  } names[] = {
      {aoti_torch_dtype_float32(), "float32"},
      {aoti_torch_dtype_float16(), "float16"},
      {aoti_torch_dtype_bfloat16(), "bfloat16"},
      {aoti_torch_dtype_float64(), "float64"},
      {aoti_torch_dtype_uint8(), "uint8"},
      {aoti_torch_dtype_int8(), "int8"},
      {aoti_torch_dtype_int16(), "int16"},
      {aoti_torch_dtype_int32(), "int32"},
      {aoti_torch_dtype_int64(), "int64"},
      {aoti_torch_dtype_uint16(), "uint16"},
      {aoti_torch_dtype_uint32(), "uint32"},
      {aoti_torch_dtype_uint64(), "uint64"},
      {aoti_torch_dtype_bool(), "bool"},
      {aoti_torch_dtype_complex32(), "complex32"},
      {aoti_torch_dtype_complex64(), "complex64"},
      {aoti_torch_dtype_complex128(), "complex128"},
      {aoti_torch_dtype_float8_e5m2(), "float8_e5m2"},
      {aoti_torch_dtype_float8_e4m3fn(), "float8_e4m3fn"},
      {aoti_torch_dtype_float8_e5m2fnuz(), "float8_e5m2fnuz"},
      {aoti_torch_dtype_float8_e4m3fnuz(), "float8_e4m3fnuz"},
      // No function of torch 2.11 has the codes of these two.
      {static_cast<int32_t>(torch::headeronly::ScalarType::Float8_e8m0fnu), "float8_e8m0fnu"},
      {static_cast<int32_t>(torch::headeronly::ScalarType::Float4_e2m1fn_x2), "float4_e2m1fn_x2"},
  };
  for (const auto &entry : names)
    if (entry.code == code) return entry.name;
  return "torch dtype " + std::to_string(code);
}

} // namespace avo

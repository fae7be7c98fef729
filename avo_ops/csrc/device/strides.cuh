// Rows of several strides, in kernels that are compiled for operands which have such rows. In their text the stride of
// an operand is a RowStrides instead of a number, and all that is done with it is overloaded here.
#pragma once

#include "../common/row_strides.h"
#include "tile.cuh"

namespace avo {

// How far from the operand's first element a row begins. Rows beyond the last one may lie anywhere.
AVO_INLINE int64_t operator*(int64_t row, const RowStrides &rows) {
  uint32_t left = uint32_t(row);
  int64_t offset = 0;
#pragma unroll
  for (int i = kMaxStrides - 2; i >= 0; --i) {
    const uint32_t quotient = uint32_t((uint64_t(left) * rows.factor[i]) >> rows.shift[i]);
    offset += int64_t(left - quotient * rows.size[i]) * rows.stride[i + 1];
    left = quotient;
  }
  return offset + int64_t(left) * rows.stride[0];
}

template <int V, class X> AVO_INLINE bool starts_at_chunk(const X *row, const RowStrides &rows) {
  int64_t bits = 0;
#pragma unroll
  for (int i = 0; i < kMaxStrides; ++i) bits |= rows.stride[i];
  return starts_at_chunk<V>(row, bits);
}

} // namespace avo

// Where the rows of an operand lie that have no single stride, for the runtime and device code alike: heads of a packed
// projection, a tensor that broadcasts over heads.
//
// A row is a number of up to three digits, the last runs fastest; each digit has a stride. Divisions by the sizes of
// the last two are products with a reciprocal: floor(r / d) = (r * f) >> s for all r below 2^31, with s = 31 +
// ceil(log2 d) and f = ceil(2^s / d) (Granlund and Montgomery, Division by Invariant Integers using Multiplication,
// PLDI 1994).
#pragma once

namespace avo {

inline constexpr int kMaxStrides = 3;

struct RowStrides {
  long long stride[kMaxStrides]; // in elements, of the slowest digit first
  unsigned size[kMaxStrides - 1], factor[kMaxStrides - 1], shift[kMaxStrides - 1]; // of the digits after the first
};

} // namespace avo

// The parameter of a kernel that treats the tensors of some lists: one struct, which the host fills by these offsets
// and device/list.cuh declares.
//
// It begins with what the whole call has: numbers, each by its value or by an address. Then there are arrays with an
// entry for each tensor of the launch: addresses, the number of elements, and the number of blocks up to its end.
#pragma once

namespace avo {

constexpr int kListBytes = 4096;  // that a kernel's parameters may have on every GPU
constexpr int kListBlock = 256;   // threads
constexpr int kListChunk = 16384; // elements of one tensor that a block treats
constexpr int kListCodes = 24;    // numbers of a call and of a tensor together, at most
// How a number is given: by its value, a double, or by an address, where it has one of these dtypes.
constexpr int kListF32 = 0, kListF16 = 1, kListBF16 = 2, kListF64 = 3, kListValue = 4;

struct ListLayout {
  int numbers;  // of the whole call
  int pointers; // of each tensor

  constexpr int capacity() const { return (kListBytes - 8 * numbers - 4 - kListCodes) / (8 * pointers + 12); }
  constexpr int pointers_at() const { return 8 * numbers; }
  constexpr int sizes_at() const { return pointers_at() + 8 * pointers * capacity(); }
  constexpr int ends_at() const { return sizes_at() + 8 * capacity(); }
  constexpr int count_at() const { return ends_at() + 4 * capacity(); }
  constexpr int codes_at() const { return count_at() + 4; }
};

} // namespace avo

// Arithmetic on sizes and strides: contiguous and dense layouts, merging of dimensions.
#pragma once

#include <cstdint>

namespace avo {

inline constexpr int kMaxDims = 64;

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

inline int64_t product(const int64_t *sizes, int ndim) {
  int64_t n = 1;
  for (int i = 0; i < ndim; ++i) n *= sizes[i];
  return n;
}

// The strides of a contiguous tensor whose dimensions lie in memory in the order `order`, last fastest.
inline void ordered_strides(const int64_t *sizes, int ndim, const int *order, int64_t *strides) {
  int64_t stride = 1;
  for (int i = ndim - 1; i >= 0; --i) {
    strides[order[i]] = stride;
    stride *= sizes[order[i]] > 1 ? sizes[order[i]] : 1;
  }
}

inline void contiguous_strides(const int64_t *sizes, int ndim, int64_t *strides) {
  int64_t stride = 1;
  for (int i = ndim - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= sizes[i] > 1 ? sizes[i] : 1;
  }
}

// Equal layouts; the stride of a dimension of size 1 means nothing.
inline bool same_layout(const int64_t *sizes, int ndim, const int64_t *a, const int64_t *b) {
  for (int i = 0; i < ndim; ++i)
    if (sizes[i] != 1 && a[i] != b[i]) return false;
  return true;
}

// Dimensions in the order of memory, outermost first. Dimensions of size 0 or 1 keep their place in a tensor that
// is already in order, and otherwise go first.
inline void order_by_strides(const int64_t *sizes, int ndim, const int64_t *strides, int *order) {
  bool sorted = true;
  int64_t last = INT64_MAX;
  for (int i = 0; i < ndim; ++i) {
    order[i] = i;
    if (sizes[i] < 2) continue;
    sorted = sorted && strides[i] <= last;
    last = strides[i];
  }
  if (sorted) return;
  auto before = [&](int a, int b) { // insertion sort is stable, and ndim is small
    if (sizes[a] < 2 || sizes[b] < 2) return sizes[a] < 2 && sizes[b] >= 2;
    return strides[a] > strides[b];
  };
  for (int i = 1; i < ndim; ++i) {
    int moved = order[i], j = i;
    for (; j > 0 && before(moved, order[j - 1]); --j) order[j] = order[j - 1];
    order[j] = moved;
  }
}

// Whether the elements, of which there are some, fill a range of memory, each once: what torch calls non-overlapping
// and dense.
inline bool is_dense(const int64_t *sizes, int ndim, const int64_t *strides, const int *order) {
  int64_t expected = 1;
  for (int i = ndim - 1; i >= 0; --i) {
    int d = order[i];
    if (sizes[d] < 2) continue;
    if (strides[d] != expected) return false;
    expected *= sizes[d];
  }
  return true;
}

// Whether torch takes the tensor for one of memory format channels_last (four dims, or five), as its
// suggest_memory_format does: not by whether it is dense, but by the order of the strides.
inline bool is_channels_last(const int64_t *sizes, const int64_t *strides, int ndim) {
  if ((ndim != 4 && ndim != 5) || strides[1] == 0) return false;
  int64_t least = 0;
  for (int k = 0; k < ndim; ++k) {
    int d = k == 0 ? 1 : k == ndim - 1 ? 0 : ndim - k; // 1, the last, ..., 2, 0
    if (sizes[d] == 0 || strides[d] < least) return false;
    if (d == 0 && least == strides[1]) return false; // one channel and one position: contiguous as well
    least = strides[d] * (sizes[d] > 1 ? sizes[d] : 1);
  }
  return true;
}

// The one stride with which a run of dimensions can be walked; false if there is none. 1 element: stride 1.
inline bool merged_stride(const int64_t *sizes, const int64_t *strides, const int *order, int begin, int end,
                          int64_t *stride) {
  int64_t expected = 0;
  bool any = false;
  *stride = 1;
  for (int i = end - 1; i >= begin; --i) {
    int d = order[i];
    if (sizes[d] == 1) continue;
    if (!any) *stride = strides[d];
    else if (strides[d] != expected) return false;
    any = true;
    expected = strides[d] * sizes[d];
  }
  return true;
}

// The strides, and the sizes, with which a run of dimensions can be walked, outermost first: as few as there can be.
// Their number, or 0 if there are more than `most`. 1 element: one stride 1.
inline int merged_strides(const int64_t *sizes, const int64_t *strides, const int *order, int begin, int end, int most,
                          int64_t *merged_sizes, int64_t *merged) {
  int count = 0;
  for (int i = begin; i < end; ++i) {
    int d = order[i];
    if (sizes[d] == 1) continue;
    if (count && merged[count - 1] == strides[d] * sizes[d]) {
      merged_sizes[count - 1] *= sizes[d];
      merged[count - 1] = strides[d];
      continue;
    }
    if (count == most) return 0;
    merged_sizes[count] = sizes[d];
    merged[count++] = strides[d];
  }
  if (count) return count;
  merged_sizes[0] = merged[0] = 1;
  return 1;
}

} // namespace avo

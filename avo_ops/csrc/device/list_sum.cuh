// One number of all elements of a list of tensors: a block adds up a chunk of a tensor, in double, and a kernel of one
// block adds up what the chunks gave, in their order.
#pragma once

#include "list.cuh"

namespace avo {

// The sum of the values that the threads of a block have; in the first of them.
AVO_INLINE double sum_of_block(double value) {
  __shared__ RowScratch<double, kListBlock, kListBlock, 1> scratch;
  int turn = 0;
  row_reduce<Sum, kListBlock, kListBlock>(scratch, turn, value);
  return value;
}

// The number of the call is where the partial sum of the first block goes. Which elements a thread adds up does not
// depend on where they lie.
template <class Step, class X, class Params> AVO_INLINE void sum_list(const Params &params) {
  constexpr int V = 16 / int(sizeof(X));
  const ListPart part(params);
  const X *const from = reinterpret_cast<const X *>(params.pointer[0][part.tensor]) + part.first;
  const bool aligned = reinterpret_cast<uint64_t>(from) % 16 == 0;
  double total = 0;
  for (int i = int(threadIdx.x) * V; i < part.left; i += kListBlock * V) {
    if (aligned && i + V <= part.left) {
      Vec<X, V> vec;
      load_list(vec, from + i);
#pragma unroll
      for (int j = 0; j < V; ++j) total = Step::add(total, double(vec[j]));
    } else {
      for (int j = i; j < i + V && j < part.left; ++j) total = Step::add(total, double(widen(from[j])));
    }
  }
  total = sum_of_block(total);
  if (threadIdx.x == 0) reinterpret_cast<double *>(params.number[0])[blockIdx.x] = total;
}

template <class Step> AVO_INLINE void finish_list(const double *partials, int64_t count, void *result, int wide) {
  double total = 0;
  for (int64_t i = threadIdx.x; i < count; i += kListBlock) total += partials[i];
  total = sum_of_block(total);
  if (threadIdx.x != 0) return;
  double found[1];
  Step::finish(&total, found);
  if (wide) *static_cast<double *>(result) = found[0];
  else *static_cast<float *>(result) = float(found[0]);
}

} // namespace avo

// The kernel of a step for the type of its elements, and the one that follows.
#undef AVO_LIST_KERNEL
#define AVO_LIST_KERNEL(NAME, STEP, X)                                                                                 \
  using NAME##_params = ListParams<1, 1>;                                                                              \
  AVO_CHECK_LAYOUT(NAME##_params)                                                                                      \
  extern "C" __global__ void __launch_bounds__(kListBlock, 4) NAME(const __grid_constant__ NAME##_params params) {     \
    sum_list<STEP, X>(params);                                                                                         \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(kListBlock, 1)                                                          \
      NAME##_finish(const double *partials, int64_t count, void *result, int wide) {                                   \
    finish_list<STEP>(partials, count, result, wide);                                                                  \
  }

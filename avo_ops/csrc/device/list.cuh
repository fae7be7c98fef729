// Kernels over lists of tensors: a block treats a chunk of one tensor, an element of each list at a time.
#pragma once

#include "../common/list.h"
#include "avo.cuh"

namespace avo {

// As the host fills it (common/list.h). Of a tensor the addresses of its operands come first, then those of its
// numbers.
template <int kNumbers, int kPointers> struct ListParams {
  static constexpr ListLayout kLayout{kNumbers, kPointers};
  static constexpr int kCapacity = kLayout.capacity();
  uint64_t number[kNumbers > 0 ? kNumbers : 1];
  uint64_t pointer[kPointers][kCapacity];
  int64_t size[kCapacity];
  int32_t end[kCapacity];
  int32_t count;
  uint8_t code[kListCodes]; // of the numbers of the call, then of those of a tensor
};

// A number in double: from its value, or from where it lies.
AVO_INLINE double list_number(uint64_t bits, int code) {
  switch (code) {
  case kListF32: return *reinterpret_cast<const float *>(bits);
  case kListF16: return widen(*reinterpret_cast<const f16 *>(bits));
  case kListBF16: return widen(*reinterpret_cast<const bf16 *>(bits));
  case kListF64: return *reinterpret_cast<const double *>(bits);
  default: return __hiloint2double(int(bits >> 32), int(bits & 0xffffffffu));
  }
}

// What a block treats: `left` elements of a tensor, from `first` on.
struct ListPart {
  int tensor, left;
  int64_t first;

  template <class Params> AVO_INLINE explicit ListPart(const Params &params) : tensor(0) {
    for (int last = params.count - 1; tensor < last;) { // to the first tensor that ends behind this block
      const int middle = (tensor + last) / 2;
      if (int(blockIdx.x) < params.end[middle]) last = middle;
      else tensor = middle + 1;
    }
    first = int64_t(int(blockIdx.x) - (tensor > 0 ? params.end[tensor - 1] : 0)) * kListChunk;
    const int64_t rest = params.size[tensor] - first;
    left = int(rest < kListChunk ? rest : kListChunk);
  }
};

template <class X, int V> AVO_INLINE void load_list(Vec<X, V> &vec, const X *p) {
  if constexpr (V == 1) vec.load(p);
  else vec.load_chunks(reinterpret_cast<const uint4 *>(p), V);
}
// Double goes to a narrower type by way of float.
template <class C, class X, int V> AVO_INLINE void store_list(X *p, const C (&values)[V]) {
  compute_t<X> rounded[V];
#pragma unroll
  for (int j = 0; j < V; ++j) rounded[j] = compute_t<X>(values[j]);
  Vec<X, V> vec;
  vec.pack(rounded);
  vec.store(p);
}

template <class... T> struct ListTypes {
  static constexpr bool kWide = ((sizeof(T) == 8) || ...);
  static constexpr int kLeast = ((sizeof(T) == 2) || ...) ? 2 : ((sizeof(T) == 4) || ...) ? 4 : 8;
};
template <bool wide> struct ListCompute {
  using type = float;
};
template <> struct ListCompute<true> {
  using type = double;
};

// Step::numbers computes, in double, what all elements of a tensor share; Step::elements treats V of them. T: the types
// of the operands. A vector has 16 bytes of the narrowest of them, if those of all operands lie at multiples of 16.
template <class Step, class Params, class... T> AVO_INLINE void run_list(const Params &params) {
  using C = typename ListCompute<ListTypes<T...>::kWide>::type;
  constexpr int V = 16 / ListTypes<T...>::kLeast, kOperands = Step::kOperands, kGiven = Step::kGiven;
  if constexpr (Step::kSkips)
    if (list_number(params.number[kGiven], params.code[kGiven]) != 0) return;

  const ListPart part(params);
  const int tensor = part.tensor;

  __shared__ C shared[Step::kShared > 0 ? Step::kShared : 1];
  if (threadIdx.x == 0) {
    constexpr int kCodes = kGiven + (Step::kSkips ? 1 : 0);
    double given[kGiven + Step::kOfTensor + 1], found[Step::kShared + 1];
#pragma unroll
    for (int i = 0; i < kGiven; ++i) given[i] = list_number(params.number[i], params.code[i]);
#pragma unroll
    for (int i = 0; i < Step::kOfTensor; ++i)
      given[kGiven + i] = list_number(params.pointer[kOperands + i][tensor], params.code[kCodes + i]);
    Step::numbers(given, found);
#pragma unroll
    for (int i = 0; i < Step::kShared; ++i) shared[i] = C(found[i]);
  }
  __syncthreads();
  C number[Step::kShared + 1];
#pragma unroll
  for (int i = 0; i < Step::kShared; ++i) number[i] = shared[i];

  uint64_t base[kOperands], together = 0;
#pragma unroll
  for (int i = 0; i < kOperands; ++i) together |= base[i] = params.pointer[i][tensor];
  const int vectors = together % 16 == 0 ? part.left / V : 0;
  for (int i = int(threadIdx.x); i < vectors; i += kListBlock)
    Step::template elements<C, V, T...>(number, base, part.first + i * V);
  for (int i = vectors * V + int(threadIdx.x); i < part.left; i += kListBlock)
    Step::template elements<C, 1, T...>(number, base, part.first + i);
}

} // namespace avo

// NVRTC has no offsetof; g++ lays the struct out in the same way.
#ifdef AVO_EMULATOR
#define AVO_CHECK_LAYOUT(PARAMS)                                                                                       \
  static_assert(                                                                                                       \
      sizeof(PARAMS) <= kListBytes && offsetof(PARAMS, pointer) == PARAMS::kLayout.pointers_at() &&                    \
      offsetof(PARAMS, size) == PARAMS::kLayout.sizes_at() && offsetof(PARAMS, end) == PARAMS::kLayout.ends_at() &&    \
      offsetof(PARAMS, count) == PARAMS::kLayout.count_at() && offsetof(PARAMS, code) == PARAMS::kLayout.codes_at());
#else
#define AVO_CHECK_LAYOUT(PARAMS)
#endif

// A kernel of a step for the types of its operands.
#define AVO_LIST_KERNEL(NAME, STEP, ...)                                                                               \
  using NAME##_params = ListParams<STEP::kGiven + (STEP::kSkips ? 1 : 0), STEP::kOperands + STEP::kOfTensor>;          \
  AVO_CHECK_LAYOUT(NAME##_params)                                                                                      \
  extern "C" __global__ void __launch_bounds__(kListBlock, 2) NAME(const __grid_constant__ NAME##_params params) {     \
    run_list<STEP, NAME##_params, __VA_ARGS__>(params);                                                                \
  }

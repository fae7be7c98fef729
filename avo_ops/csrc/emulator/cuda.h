// CUDA C++ for g++, as far as csrc/device and the emitted kernels use it. A kernel's source is compiled as it ships,
// with this header before it and one AVO_EMULATED(kernel) a kernel after it. Each thread of a block is a fiber of
// engine.cpp, so a thread runs alone until it waits.
//
// To come with their first use: cp.async and bulk copies (the twin records source, destination and group, and the
// engine copies when the thread's wait, or its mbarrier's phase, completes: not before, so that an early read sees the
// fill pattern), griddepcontrol (a grid follows the one before it: wait and launch do nothing).
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "engine.h"

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
// The thread-local storage of a library is its shared memory: found, filled and exchanged as one range of bytes. Used:
// the engine writes it too, so g++ must not conclude that a variable without a store is zero.
#define __shared__ static thread_local __attribute__((used))

namespace avo::emulator {

// One unit is one library, so this is a definition.
extern "C" {
__attribute__((visibility("default"))) Library avo_emulated_library;
}

// As last parameters: the place of the call.
#define AVO_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

inline const Engine &engine() { return *avo_emulated_library.engine; }

template <class... P, size_t... I> void call_with(void (*kernel)(P...), void **params, std::index_sequence<I...>) {
  kernel(*static_cast<P *>(params[I])...);
}
template <class... P> void call_with(void (*kernel)(P...), void **params) {
  call_with(kernel, params, std::index_sequence_for<P...>());
}

template <class T> uint64_t to_word(T value) {
  static_assert(sizeof(T) <= 8);
  uint64_t word = 0;
  std::memcpy(&word, &value, sizeof value);
  return word;
}
template <class T> T from_word(uint64_t word) {
  T value;
  std::memcpy(&value, &word, sizeof value);
  return value;
}

} // namespace avo::emulator

#define AVO_EMULATED(KERNEL)                                                                                           \
  extern "C" __attribute__((visibility("default"))) const ::avo::emulator::Kernel KERNEL##__emulated = {               \
      #KERNEL, [](void **params) { ::avo::emulator::call_with(&KERNEL, params); },                                     \
      &::avo::emulator::avo_emulated_library};

#define threadIdx (::avo::emulator::avo_emulated_library.thread->thread)
#define blockIdx (::avo::emulator::avo_emulated_library.thread->block)
#define blockDim (::avo::emulator::avo_emulated_library.block)
#define gridDim (::avo::emulator::avo_emulated_library.grid)

// ---- barriers, shuffles, votes ----

inline void __syncthreads(AVO_SITE) { avo::emulator::engine().block_barrier({file, line}); }
inline void __syncwarp(uint32_t mask = 0xffffffffu, AVO_SITE) {
  avo::emulator::engine().ballot(mask, false, {file, line});
}

inline uint32_t __ballot_sync(uint32_t mask, bool predicate, AVO_SITE) {
  return avo::emulator::engine().ballot(mask, predicate, {file, line});
}
inline bool __any_sync(uint32_t mask, bool predicate, AVO_SITE) { return __ballot_sync(mask, predicate, file, line); }
inline bool __all_sync(uint32_t mask, bool predicate, AVO_SITE) {
  return __ballot_sync(mask, predicate, file, line) == mask;
}

namespace avo::emulator {
template <class T> T shuffle(uint32_t mask, T value, int source, bool inside, Site site) {
  const int own = int(threadIdx.x) % 32;
  return from_word<T>(engine().shuffle(mask, to_word(value), inside ? source : own, site));
}
} // namespace avo::emulator

// A source outside the segment of `width` lanes is the lane itself.
template <class T> T __shfl_sync(uint32_t mask, T value, int source, int width = 32, AVO_SITE) {
  const int lane = int(threadIdx.x) % 32, first = lane / width * width;
  return avo::emulator::shuffle(mask, value, first + source % width, true, {file, line});
}
template <class T> T __shfl_up_sync(uint32_t mask, T value, unsigned delta, int width = 32, AVO_SITE) {
  const int lane = int(threadIdx.x) % 32, first = lane / width * width;
  return avo::emulator::shuffle(mask, value, lane - int(delta), lane - int(delta) >= first, {file, line});
}
template <class T> T __shfl_down_sync(uint32_t mask, T value, unsigned delta, int width = 32, AVO_SITE) {
  const int lane = int(threadIdx.x) % 32, end = lane / width * width + width;
  return avo::emulator::shuffle(mask, value, lane + int(delta), lane + int(delta) < end, {file, line});
}
template <class T> T __shfl_xor_sync(uint32_t mask, T value, int lanes, int width = 32, AVO_SITE) {
  const int lane = int(threadIdx.x) % 32, end = lane / width * width + width;
  return avo::emulator::shuffle(mask, value, lane ^ lanes, (lane ^ lanes) < end, {file, line});
}

// ---- vectors and bits ----

struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }

inline uint32_t __float_as_uint(float v) { return uint32_t(avo::emulator::to_word(v)); }
inline float __uint_as_float(uint32_t v) { return avo::emulator::from_word<float>(v); }
inline int __double2loint(double v) { return int(uint32_t(avo::emulator::to_word(v))); }
inline int __double2hiint(double v) { return int(uint32_t(avo::emulator::to_word(v) >> 32)); }
inline double __hiloint2double(int hi, int lo) {
  return avo::emulator::from_word<double>(uint64_t(uint32_t(hi)) << 32 | uint32_t(lo));
}
// The low word of hi:lo shifted right by `shift` mod 32.
inline uint32_t __funnelshift_r(uint32_t lo, uint32_t hi, uint32_t shift) {
  return uint32_t((uint64_t(hi) << 32 | lo) >> (shift & 31));
}

// ---- for the twins in csrc/device ----

namespace avo::emulator {

inline int cluster_rank() { return avo_emulated_library.thread->rank; }

inline uint4 load_chunk(const uint4 *from, Site site) {
  uint4 chunk;
  engine().load_chunk(from, &chunk, site);
  return chunk;
}

// cvt.rn.f16.f32 and cvt.rn.bf16.f32: to nearest even; a NaN becomes the canonical one.
inline uint16_t to_half(float value) {
  const uint32_t bits = __float_as_uint(value), magnitude = bits & 0x7fffffffu;
  const uint16_t sign = uint16_t(bits >> 16 & 0x8000);
  if (magnitude > 0x7f800000u) return 0x7fff;
  if (magnitude >= 0x477ff000u) return sign | 0x7c00; // 65520 and above
  if (magnitude < 0x38800000u)                        // below 2^-14: the sum's last bit is a denormal's
    return sign | uint16_t(__float_as_uint(__uint_as_float(magnitude) + 0.5f) - 0x3f000000u);
  return sign | uint16_t((magnitude - 0x38000000u + 0xfff + (magnitude >> 13 & 1)) >> 13);
}
inline uint16_t to_bfloat(float value) {
  const uint32_t bits = __float_as_uint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
// cvt.f32.f16
inline float half_to_float(uint16_t half) {
  const uint32_t sign = uint32_t(half & 0x8000) << 16, magnitude = half & 0x7fff;
  if (magnitude > 0x7c00) return __uint_as_float(0x7fffffffu);
  if (magnitude == 0x7c00) return __uint_as_float(sign | 0x7f800000u);
  if (magnitude < 0x400) return __uint_as_float(sign | __float_as_uint(float(magnitude) * 0x1p-24f));
  return __uint_as_float(sign | ((magnitude << 13) + 0x38000000u));
}

} // namespace avo::emulator

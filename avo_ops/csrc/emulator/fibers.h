// Fibers: stacks, and the switch between them.
#pragma once

#include <cstddef>

namespace avo::emulator {

// A thread of execution with its own stack, or the one that launched (no stack of ours).
struct Fiber {
  void *saved = nullptr; // stack pointer while it does not run
  char *stack = nullptr;
  const void *asan_bottom = nullptr;
  size_t asan_size = 0;
  void *asan_fake = nullptr;
};

// Address space: a page is backed when it is touched. No power of two, so that the tops of the stacks, which every
// switch touches, do not share a few sets of the cache.
inline constexpr size_t kStackBytes = 256 * 1024 + 13 * 64;

// A region for `count` stacks that grows as needed and is kept.
class Stacks {
public:
  ~Stacks();
  void reserve(size_t count);
  // The fibers of the first `count` stacks did not return: what a sanitizer remembers of their frames is void.
  void abandon(size_t count);
  char *operator[](size_t i) const { return base_ + i * kStackBytes; }

private:
  char *base_ = nullptr;
  size_t count_ = 0;
};

// Makes `fiber` begin with entry() at its first switch; entry must not return.
void prepare(Fiber &fiber, char *stack, void (*entry)());

// `last`: `from` will not run again.
void switch_fibers(Fiber &from, Fiber &to, bool last);

// The first thing that entry does.
void fiber_began();

} // namespace avo::emulator

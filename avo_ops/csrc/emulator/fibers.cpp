// x86-64, System V: what a call must keep is on the stack, so a switch is a push, an exchange of stack pointers and a
// pop. The sanitizers' functions are there when their library is loaded into the process.
#include "fibers.h"

#include <cstdint>
#include <new>
#include <sys/mman.h>

extern "C" {
__attribute__((weak)) void __sanitizer_start_switch_fiber(void **fake_stack, const void *bottom, size_t size);
__attribute__((weak)) void __sanitizer_finish_switch_fiber(void *fake_stack, const void **bottom, size_t *size);
__attribute__((weak)) void __asan_unpoison_memory_region(const volatile void *address, size_t size);

void avo_switch_stacks(void **from, void *to);
}

asm(R"(
.text
.globl avo_switch_stacks
.hidden avo_switch_stacks
.type avo_switch_stacks, @function
avo_switch_stacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size avo_switch_stacks, .-avo_switch_stacks
)");

namespace avo::emulator {
namespace {

Fiber *left = nullptr, *entered = nullptr; // of the switch in progress

void finish_switch() {
  if (!__sanitizer_finish_switch_fiber) return;
  const void *bottom = nullptr;
  size_t size = 0;
  __sanitizer_finish_switch_fiber(entered->asan_fake, &bottom, &size);
  if (!left->stack) left->asan_bottom = bottom, left->asan_size = size; // the launching thread's own stack
}

} // namespace

Stacks::~Stacks() {
  if (base_) munmap(base_, count_ * kStackBytes);
}

void Stacks::reserve(size_t count) {
  if (count <= count_) return;
  if (base_) munmap(base_, count_ * kStackBytes);
  void *memory = mmap(nullptr, count * kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  base_ = memory == MAP_FAILED ? nullptr : static_cast<char *>(memory);
  count_ = base_ ? count : 0;
  if (!base_) throw std::bad_alloc();
}

void Stacks::abandon(size_t count) {
  if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(base_, count * kStackBytes);
}

void prepare(Fiber &fiber, char *stack, void (*entry)()) {
  fiber.stack = stack;
  fiber.asan_bottom = stack;
  fiber.asan_size = kStackBytes;
  fiber.asan_fake = nullptr;
  auto *top = reinterpret_cast<void **>(stack + kStackBytes);
  *--top = nullptr; // where entry would return to; keeps the stack aligned as after a call
  *--top = reinterpret_cast<void *>(entry);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  fiber.saved = top;
}

void switch_fibers(Fiber &from, Fiber &to, bool last) {
  left = &from;
  entered = &to;
  if (__sanitizer_start_switch_fiber)
    __sanitizer_start_switch_fiber(last ? nullptr : &from.asan_fake, to.asan_bottom, to.asan_size);
  avo_switch_stacks(&from.saved, to.saved);
  finish_switch();
}

void fiber_began() { finish_switch(); }

} // namespace avo::emulator

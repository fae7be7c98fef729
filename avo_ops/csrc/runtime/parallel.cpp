// torch's thread pool by the stable shims. In a forked child that pool's threads are gone, and asking for
// them can hang: there every call runs on its own thread.
#include "parallel.h"

#include <cstdlib>
#include <pthread.h>

#include <torch/csrc/stable/c/shim.h>

#include "tensor.h"

namespace avo {
namespace {

bool in_forked_child = false;

[[maybe_unused]] const int fork_handler = pthread_atfork(nullptr, nullptr, [] { in_forked_child = true; });

struct Scratch {
  void *memory = nullptr;
  size_t bytes = 0;
  ~Scratch() { std::free(memory); }
};

thread_local Scratch scratch;

} // namespace

void parallel_for(int64_t count, int64_t grain, void (*f)(int64_t, int64_t, void *), void *context) {
  if (in_forked_child) f(0, count, context);
  else check_shim(torch_parallel_for(0, count, grain, f, context), "parallel loop");
}

int64_t pool_threads() {
  uint32_t threads = 1;
  if (!in_forked_child) torch_get_num_threads(&threads);
  return threads;
}

void *thread_scratch(size_t bytes) {
  if (bytes <= scratch.bytes) return scratch.memory;
  std::free(scratch.memory);
  size_t rounded = (bytes + bytes / 2 + 63) / 64 * 64; // some room to grow
  scratch.memory = std::aligned_alloc(64, rounded);
  scratch.bytes = scratch.memory ? rounded : 0;
  return scratch.memory;
}

} // namespace avo

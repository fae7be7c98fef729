// Work on torch's thread pool, and memory that each thread keeps for it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace avo {

inline constexpr int64_t kGrain = 32768; // elements below which a call stays on its thread

// Calls f(begin, end) over parts of [0, count) of at least `grain` items, on torch's pool. f must not throw.
void parallel_for(int64_t count, int64_t grain, void (*f)(int64_t, int64_t, void *), void *context);

template <class F> void parallel_for(int64_t count, int64_t grain, F &f) {
  if (count <= grain) {
    if (count > 0) f(0, count);
    return;
  }
  parallel_for(
      count, grain, [](int64_t begin, int64_t end, void *context) { (*static_cast<F *>(context))(begin, end); }, &f);
}

int64_t pool_threads();

// At least `bytes` of this thread's memory, aligned to 64 bytes and kept until the thread ends; null when
// there is none.
void *thread_scratch(size_t bytes);

} // namespace avo

// Loading of CPU kernels: dlopen, the choice of an instruction set, a map from names to functions.
#include "cpu_kernels.h"

#include <algorithm>
#include <cstdlib>
#include <dlfcn.h>
#include <map>
#include <memory>
#include <mutex>
#include <pthread.h>

#include "message.h"

namespace avo {
namespace {

const char *const kIsas[] = {"base", "v3", "v4"};

bool machine_has(int isa) {
  __builtin_cpu_init();
  bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") &&
            __builtin_cpu_supports("bmi2");
  bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return isa == 0 || (isa == 1 ? v3 : v4);
}

// The variable can only lower the choice: an instruction set that the machine lacks would crash.
int best_isa() {
  int best = machine_has(2) ? 2 : machine_has(1) ? 1 : 0;
  const char *wanted = std::getenv("AVO_OPS_CPU_ISA");
  if (!wanted || !*wanted) return best;
  for (int i = 0; i < 3; ++i)
    if (std::string(wanted) == kIsas[i]) return std::min(i, best);
  fail("AVO_OPS_CPU_ISA must be base, v3 or v4, but is '", wanted, "'");
}

struct Loaded {
  std::mutex mutex;
  std::map<std::string, const CpuKernel *> kernels; // entries are never freed: cases point at them
};

Loaded &loaded() {
  static auto *loaded = new Loaded;
  return *loaded;
}

// A fork waits for a load that another thread is in, so that the child does not inherit a lock that nobody
// frees.
[[maybe_unused]] const int fork_handler =
    pthread_atfork([] { loaded().mutex.lock(); }, [] { loaded().mutex.unlock(); }, [] { loaded().mutex.unlock(); });

} // namespace

const char *cpu_isa() { return kIsas[best_isa()]; }

void load_cpu_kernels(const char *path) {
  int isa = best_isa();
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) fail("CPU kernels: ", dlerror());
  AvoCpuTable table = nullptr;
  AvoCpuFinish finish = nullptr;
  for (; isa >= 0; --isa) {
    table = reinterpret_cast<AvoCpuTable>(dlsym(library, join("avo_cpu_kernels_", kIsas[isa]).c_str()));
    finish = reinterpret_cast<AvoCpuFinish>(dlsym(library, join("avo_cpu_finish_", kIsas[isa]).c_str()));
    if (table) break;
  }
  if (!table) fail("CPU kernels: ", path, " has no avo_cpu_kernels_* for this machine");
  int count = 0;
  const AvoKernelEntry *entries = table(&count);
  std::lock_guard<std::mutex> lock(loaded().mutex);
  for (int i = 0; i < count; ++i) {
    auto kernel = std::make_unique<CpuKernel>();
    kernel->f32 = entries[i].f32;
    kernel->f64 = entries[i].f64;
    kernel->finish = finish;
    kernel->path = join("cpu/", kIsas[isa], "/", entries[i].name);
    loaded().kernels[entries[i].name] = kernel.release();
  }
}

const CpuKernel *cpu_kernel(const CpuCase &one) {
  if (const CpuKernel *kernel = one.kernel.load(std::memory_order_acquire)) return kernel;
  std::lock_guard<std::mutex> lock(loaded().mutex);
  auto found = loaded().kernels.find(one.symbol);
  if (found == loaded().kernels.end()) return nullptr;
  one.kernel.store(found->second, std::memory_order_release);
  return found->second;
}

} // namespace avo

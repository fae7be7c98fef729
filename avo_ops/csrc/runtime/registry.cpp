// Registration with torch's dispatcher. A boxed kernel of the stable ABI is a bare function without a
// closure, so there is one function for each slot of a table, made by the compiler.
#include "registry.h"

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <utility>

#include "run.h"

namespace avo {
namespace {

constexpr size_t kSlots = 1024;

std::atomic<const Op *> slots[kSlots];

template <size_t I> void trampoline(StableIValue *stack, uint64_t arguments, uint64_t results) {
  call_operator(*slots[I].load(std::memory_order_acquire), stack, arguments, results);
}

using BoxedKernel = void (*)(StableIValue *, uint64_t, uint64_t);

template <size_t... I> constexpr std::array<BoxedKernel, kSlots> make_trampolines(std::index_sequence<I...>) {
  return {&trampoline<I>...};
}
constexpr auto kTrampolines = make_trampolines(std::make_index_sequence<kSlots>());

// Tables and library handles live as long as the process: torch keeps pointing at them.
struct Registry {
  std::mutex mutex;
  size_t used = 0;
  std::map<std::string, const Op *> by_name;
  std::vector<Tables> tables;
  std::map<std::pair<std::string, std::string>, TorchLibraryHandle> libraries;
};

Registry &registry() {
  static auto *registry = new Registry;
  return *registry;
}

TorchLibraryHandle library_for(const std::string &space, const char *key) {
  TorchLibraryHandle &library = registry().libraries[{space, key}];
  if (!library)
    check_shim(aoti_torch_library_init_impl(space.c_str(), key, "avo_ops", 0, &library), "registration with torch");
  return library;
}

void register_kernels(const Op &op) {
  size_t slot = registry().used++;
  slots[slot].store(&op, std::memory_order_release);
  for (const char *key : {"CPU", "CUDA"})
    check_shim(torch_library_impl(library_for(op.space, key), op.name.c_str(), kTrampolines[slot], TORCH_ABI_VERSION),
               ("registration of " + op.qualified).c_str());
}

} // namespace

void register_tables(const char *text, bool kernels) {
  Tables tables = parse_tables(text);
  std::lock_guard<std::mutex> lock(registry().mutex);
  for (const auto &op : tables.ops)
    if (registry().by_name.count(op->qualified)) fail(op->qualified, " is registered already");
  if (kernels && registry().used + tables.ops.size() > kSlots)
    fail("no slot left for ", tables.ops.size(), " operators: at most ", kSlots,
         " can be registered in a process, and ", registry().used, " are");
  for (const auto &op : tables.ops) {
    if (kernels) register_kernels(*op);
    registry().by_name[op->qualified] = op.get();
  }
  registry().tables.push_back(std::move(tables));
}

const Op *find_op(const std::string &qualified) {
  std::lock_guard<std::mutex> lock(registry().mutex);
  auto found = registry().by_name.find(qualified);
  return found == registry().by_name.end() ? nullptr : found->second;
}

void for_each_op(const std::function<void(const Op &)> &f) {
  std::lock_guard<std::mutex> lock(registry().mutex);
  for (const Tables &tables : registry().tables)
    for (const auto &op : tables.ops) f(*op);
}

} // namespace avo

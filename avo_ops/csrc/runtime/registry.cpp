// Registration with torch's dispatcher. A boxed kernel of the stable ABI is a bare function without a
// closure, so there is one function for each slot of a table, made by the compiler.
#include "registry.h"

#include <pthread.h>

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <utility>

#include "run.h"

namespace avo {
namespace {

constexpr size_t kSlots = 1024;

struct Slot {
  std::string qualified;
  std::atomic<const Op *> op{nullptr}; // null until the table is there
};
Slot slots[kSlots];

template <size_t I> void trampoline(StableIValue *stack, uint64_t arguments, uint64_t results) {
  const Op *op = slots[I].op.load(std::memory_order_acquire);
  if (!op) slots[I].op.store(op = &called_op(slots[I].qualified), std::memory_order_release);
  call_operator(*op, stack, arguments, results);
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
  static auto *registry = [] {
    // A child that is forked while another thread makes a first call must find the mutex free.
    pthread_atfork([] { avo::registry().mutex.lock(); }, [] { avo::registry().mutex.unlock(); },
                   [] { avo::registry().mutex.unlock(); });
    return new Registry;
  }();
  return *registry;
}

std::atomic<TableSource> table_source{nullptr};

TorchLibraryHandle library_for(const std::string &space, const char *key) {
  TorchLibraryHandle &library = registry().libraries[{space, key}];
  if (!library)
    check_shim(aoti_torch_library_init_impl(space.c_str(), key, "avo_ops", 0, &library), "registration with torch");
  return library;
}

// The functions below are called with the mutex held.

void need_slots(size_t count) {
  if (registry().used + count > kSlots)
    fail("no slot left for ", count, " operators: at most ", kSlots, " can be registered in a process, and ",
         registry().used, " are");
}

void register_kernels(const std::string &space, const std::string &name, const Op *op) {
  size_t slot = registry().used++;
  slots[slot].qualified = space + "::" + name;
  slots[slot].op.store(op, std::memory_order_release);
  for (const char *key : {"CPU", "CUDA"})
    check_shim(torch_library_impl(library_for(space, key), name.c_str(), kTrampolines[slot], TORCH_ABI_VERSION),
               ("registration of " + slots[slot].qualified).c_str());
}

const Op *known_op(const std::string &qualified) {
  auto found = registry().by_name.find(qualified);
  return found == registry().by_name.end() ? nullptr : found->second;
}

void keep(Tables tables) {
  for (const auto &op : tables.ops) registry().by_name[op->qualified] = op.get();
  registry().tables.push_back(std::move(tables));
}

} // namespace

void register_tables(const char *text) {
  Tables tables = parse_tables(text);
  std::lock_guard<std::mutex> lock(registry().mutex);
  for (const auto &op : tables.ops)
    if (known_op(op->qualified)) fail(op->qualified, " is registered already");
  need_slots(tables.ops.size());
  for (const auto &op : tables.ops) register_kernels(op->space, op->name, op.get());
  keep(std::move(tables));
}

void add_tables(const char *text) {
  Tables tables = parse_tables(text);
  std::lock_guard<std::mutex> lock(registry().mutex);
  for (const auto &op : tables.ops)
    if (known_op(op->qualified)) return;
  keep(std::move(tables));
}

void declare_op(const std::string &qualified) {
  size_t colons = qualified.find("::");
  if (colons == std::string::npos) fail("'", qualified, "' has no namespace");
  std::lock_guard<std::mutex> lock(registry().mutex);
  need_slots(1);
  register_kernels(qualified.substr(0, colons), qualified.substr(colons + 2), nullptr);
}

void set_table_source(TableSource source) { table_source = source; }

const Op *find_op(const std::string &qualified) {
  auto known = [&] {
    std::lock_guard<std::mutex> lock(registry().mutex);
    return known_op(qualified);
  };
  const Op *found = known();
  if (TableSource source = table_source; !found && source) {
    source(qualified.c_str());
    found = known();
  }
  return found;
}

const Op &called_op(const std::string &qualified) {
  const Op *op = find_op(qualified);
  if (!op) fail(qualified, " has no operator table");
  return *op;
}

void for_each_op(const std::function<void(const Op &)> &f) {
  std::lock_guard<std::mutex> lock(registry().mutex);
  for (const Tables &tables : registry().tables)
    for (const auto &op : tables.ops) f(*op);
}

} // namespace avo

// Launches in the emulator: the plan and the parameters that a GPU would get, on memory of the CPU. Its kernels are
// libraries of their own, one a family, for which the resolver is asked with arch 0; one a kernel of those for several
// row strides.
#include <cstring>
#include <map>
#include <mutex>

#include "cuda_kernels.h"
#include "emulation.h"
#include "launcher.h"

namespace avo {
namespace {

struct State {
  std::atomic<bool> on{false};
  std::mutex mutex;
  Emulation emulation;
  std::map<std::string, emulator::Kernels> libraries; // by name; one process has them with or without a sanitizer
};

State &state() {
  static auto *state = new State; // never destroyed: as long as the process
  return *state;
}

const emulator::Kernels &library_of(const std::string &family) {
  {
    std::lock_guard<std::mutex> lock(state().mutex);
    auto found = state().libraries.find(family);
    if (found != state().libraries.end()) return found->second;
  }
  const std::string path = resolve_kernels(family, 0); // may wait for the interpreter's lock: without ours
  if (path.empty()) fail("emulator: there is no library of ", family);
  emulator::Kernels loaded(path.c_str());
  std::lock_guard<std::mutex> lock(state().mutex);
  return state().libraries.emplace(family, loaded).first->second;
}

class EmulatorLauncher final : public Launcher {
public:
  EmulatorLauncher() : options_(emulator_options()) {}

  void *kernel(const Family &family, const Variant &variant) override {
    const void *found = variant.emulated.load(std::memory_order_acquire);
    if (!found) {
      const std::string &library = variant.strided || variant.added ? variant.unit : family.name;
      try {
        found = library_of(library).find(variant.symbol);
      } catch (const NotNow &) { // as on a GPU
        if (!variant.strided) throw;
        return nullptr;
      }
      if (!found) fail("emulator: the library of ", library, " has no kernel ", variant.symbol);
      variant.emulated.store(found, std::memory_order_release);
    }
    return const_cast<void *>(found);
  }

  void allocated(const OwnedTensor &tensor) override {
    std::memset(tensor.data(), options_.fill, static_cast<size_t>(tensor.storage_bytes()));
  }

  void launch(const std::string &, const Variant &variant, const uint32_t (&grid)[3], void *kernel,
              void **params) override {
    emulator::Launch launch;
    launch.grid = {grid[0], grid[1], grid[2]};
    launch.block.x = static_cast<unsigned>(variant.block);
    launch.cluster = variant.cluster;
    launch.shared_bytes = static_cast<size_t>(variant.smem);
    emulator::launch(*static_cast<const emulator::Kernel *>(kernel), launch, params, options_);
  }

private:
  const emulator::Options options_;
};

} // namespace

void set_emulation(const Emulation &emulation) {
  std::lock_guard<std::mutex> lock(state().mutex);
  state().emulation = emulation;
  state().on.store(emulation.arch > 0, std::memory_order_release);
}

bool emulating() { return state().on.load(std::memory_order_relaxed); }

Target emulated_target() {
  std::lock_guard<std::mutex> lock(state().mutex);
  Target target;
  target.cuda = target.emulated = true;
  target.arch = state().emulation.arch;
  target.sms = state().emulation.sms;
  return target;
}

emulator::Options emulator_options() {
  std::lock_guard<std::mutex> lock(state().mutex);
  return state().emulation.options;
}

std::unique_ptr<Launcher> emulator_launcher() { return std::make_unique<EmulatorLauncher>(); }

} // namespace avo

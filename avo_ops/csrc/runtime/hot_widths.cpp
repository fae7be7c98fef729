// Counts calls of one width, and takes in the kernels that are made for it.
#include "hot_widths.h"

#include <atomic>
#include <memory>
#include <vector>

#include "cuda_driver.h"
#include "cuda_kernels.h"
#include "emulation.h"
#include "launcher.h"
#include "message.h"
#include "registry.h"

namespace avo {
namespace {

std::atomic<HotWidthCallback> callback{nullptr};

struct Place {
  const Family *family;
  const Use *use;
};

std::vector<Place> places_of(const std::string &symbol) {
  std::vector<Place> found;
  for_each_op([&](const Op &op) {
    for (const auto &one : op.cases)
      for (const Alternative &alternative : one->cuda)
        for (const Step &step : alternative.steps)
          for (const auto &row : step.uses)
            for (const auto &uses : row)
              for (const auto &use : uses)
                if (use->variant->symbol == symbol) found.push_back({step.family, use.get()});
  });
  return found;
}

// For as long as it lives, this thread does not disturb a capture on another one.
class Relaxed {
public:
  Relaxed() { exchange(); }
  Relaxed(const Relaxed &) = delete;
  ~Relaxed() { exchange(); }

private:
  void exchange() {
    if (const cuda::Driver *driver = cuda::driver()) driver->cuThreadExchangeStreamCaptureMode(&mode_);
  }
  cuda::CaptureMode mode_ = cuda::kCaptureRelaxed;
};

// Loads the kernel on this thread: a call that is captured finds it ready.
bool load(const Family &family, const Variant &variant, int arch) {
  if (arch == 0) return emulator_launcher()->kernel(family, variant);
  Relaxed relaxed;
  Target target;
  target.cuda = true;
  target.arch = arch;
  return cuda_kernel(family, variant, target);
}

} // namespace

void set_hot_width_callback(HotWidthCallback f) { callback = f; }

void note_width(const Family &family, const Use &use, int64_t n, const Target &target) {
  const Variant &variant = *use.variant;
  if (variant.exact != kWholeChunks || variant.strided || variant.cols > 0 || variant.cluster > 1 ||
      family.kind != FamilyClass::Row)
    return;
  HotWidthCallback told = callback.load(std::memory_order_relaxed);
  if (!told) return;
  if (use.width.load(std::memory_order_relaxed) != n) { // two threads at once: it takes a few calls more
    use.width.store(n, std::memory_order_relaxed);
    use.times.store(1, std::memory_order_relaxed);
  } else if (use.times.fetch_add(1, std::memory_order_relaxed) + 1 == kHotCalls) {
    told(variant.symbol.c_str(), n, target.kernel_arch());
  }
}

void add_exact(const std::string &general, const std::string &symbol, int64_t n, int arch) {
  for (const Place &place : places_of(general)) {
    const Variant &variant = *place.use->variant;
    if (variant.exact != kWholeChunks || !variant.holds(n) || n % variant.vec != 0)
      fail(general, " is no kernel for whole chunks of ", n, " columns");
    if (exact_use(*place.use, n, arch)) continue;
    auto made = std::make_unique<ExactUse>();
    static_cast<VariantFacts &>(made->variant) = variant;
    made->variant.symbol = made->variant.unit = symbol;
    made->variant.min_n = made->variant.max_n = made->variant.exact = n;
    made->variant.added = true;
    made->use.variant = &made->variant;
    made->arch = arch;
    if (!load(*place.family, made->variant, arch)) fail("the kernel ", symbol, " cannot be loaded");
    made->next = place.use->exact.load(std::memory_order_acquire);
    while (!place.use->exact.compare_exchange_weak(made->next, made.get(), std::memory_order_acq_rel)) {
    }
    made.release();
  }
}

} // namespace avo

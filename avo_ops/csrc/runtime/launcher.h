// Where the kernels of a plan run: on a GPU through its driver, or on the CPU through the emulator.
#pragma once

#include <memory>

#include "plan.h"
#include "tensor.h"

namespace avo {

class Launcher {
public:
  virtual ~Launcher() = default;
  // What launch() takes; null, after one warning, when there is no such kernel.
  virtual void *kernel(const Family &family, const Variant &variant) = 0;
  // Memory that no kernel has written yet.
  virtual void allocated(const OwnedTensor &) {}
  // `op`: who speaks in an error.
  virtual void launch(const std::string &op, const Variant &variant, const uint32_t (&grid)[3], void *kernel,
                      void **params) = 0;
};

// Each for one call on one thread; null when this torch or machine has no CUDA.
std::unique_ptr<Launcher> driver_launcher(const Target &target);
std::unique_ptr<Launcher> emulator_launcher();

} // namespace avo

// Running a kernel of an emulated library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "engine.h"

namespace avo::emulator {

enum class Order : int { Ascending, Descending, Random };

// What may not change a result: the order in which threads and blocks run, and what memory holds before it is written.
struct Options {
  Order order = Order::Ascending;
  uint32_t seed = 0;
  uint8_t fill = 0xff; // 0xff: NaN in every float type
};

struct Launch {
  Dim grid{1, 1, 1}, block{1, 1, 1};
  int cluster = 1; // blocks, in x
  size_t shared_bytes = 0;
};

// A library of kernels. Throws std::runtime_error if it does not load.
class Kernels {
public:
  explicit Kernels(const char *path);
  const Kernel *find(const std::string &name) const; // or null

private:
  void *handle_; // loaded for ever
};

// Runs the grid to its end. Throws std::runtime_error for what a thread may not do: kernel, source line, block, thread.
void launch(const Kernel &kernel, const Launch &launch, void **params, const Options &options);

// Writes to stderr which thread of which kernel is running, if any: for the report of a sanitizer.
void print_running_thread();

} // namespace avo::emulator

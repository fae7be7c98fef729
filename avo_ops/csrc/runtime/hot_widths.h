// Widths that calls have again and again: they get kernels of their own while the process runs.
#pragma once

#include <string>

#include "plan.h"
#include "table.h"

namespace avo {

// Told once that many calls in a row of a kernel for rows of whole chunks had the same width. Called without any lock
// held, by the thread of the last of them, which waits: it must not compile. Arch 0: in the emulator.
using HotWidthCallback = void (*)(const char *symbol, int64_t n, int arch);
void set_hot_width_callback(HotWidthCallback callback);

constexpr int kHotCalls = 64;

// To be called for each launch.
void note_width(const Family &family, const Use &use, int64_t n, const Target &target);

// Puts the kernel `symbol`, alone in the unit of that name, in the place of the kernel `general` for rows of n columns,
// in all ops that use it, once it is loaded. Throws if it cannot be loaded, or is not for an n of that kernel.
void add_exact(const std::string &general, const std::string &symbol, int64_t n, int arch);

} // namespace avo

// Whether CPU tensors go through the CUDA kernels, on a GPU that is imagined.
#pragma once

#include "../emulator/launch.h"
#include "plan.h"

namespace avo {

struct Emulation {
  int arch = 0, sms = 0; // arch 0: none
  emulator::Options options;
};

void set_emulation(const Emulation &emulation);
bool emulating();
Target emulated_target();
emulator::Options emulator_options();

} // namespace avo

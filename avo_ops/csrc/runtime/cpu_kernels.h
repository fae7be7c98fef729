// The CPU kernels that are loaded, by name.
#pragma once

#include <string>

#include "table.h"

namespace avo {

// Adds the kernels of a library, those for the best instruction set that the machine, AVO_OPS_CPU_ISA and the
// library allow. A name that is there already is replaced for operators that have not used it yet. Throws.
void load_cpu_kernels(const char *path);

// "base", "v3" or "v4": what the machine and AVO_OPS_CPU_ISA allow. Throws for an unknown AVO_OPS_CPU_ISA.
const char *cpu_isa();

// The kernel of a case, or null when no library has it.
const CpuKernel *cpu_kernel(const CpuCase &one);

} // namespace avo

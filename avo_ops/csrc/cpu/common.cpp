// What every library of kernels has once. The build compiles it for each instruction set, into libavo_cpu.so and as an
// object beside it, with which the kernels of compiled functions are linked: it takes longer than most of them.
#include "finish.h"
#include "staging.h"

// Everything that an emitted kernel uses.
#pragma once

#include "cluster.cuh"
#include "columns.cuh"
#include "math.cuh"
#include "reduce.cuh"
#include "tile.cuh"
#include "types.cuh"
#include "vector.cuh"

// A kernel for a block size and template arguments. Its source says of which template (AVO_FUNCTION), with what
// parameters (AVO_PARAMETERS, which depend on the types that the template arguments begin with), called with what.
#define AVO_KERNEL(NAME, BLOCK, MIN_BLOCKS, ...)                                                                       \
  extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS) NAME(AVO_PARAMETERS(__VA_ARGS__)) {                  \
    AVO_FUNCTION<BLOCK, __VA_ARGS__>(AVO_ARGUMENTS);                                                                   \
  }

using namespace avo;

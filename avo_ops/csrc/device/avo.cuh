// Everything that an emitted kernel uses.
#pragma once

#include "cluster.cuh"
#include "columns.cuh"
#include "math.cuh"
#include "reduce.cuh"
#include "tile.cuh"
#include "types.cuh"
#include "vector.cuh"

// The choice of rows and columns for an operator that names none (rule flat), for CPU and CUDA alike.
#pragma once

#include <utility>

#include "plan.h"

namespace avo {

inline constexpr int kIdentity[kMaxDims] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                            16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31,
                                            32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47,
                                            48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};

// N becomes the longest run of inner dims that merges in every operand, M the product of the others. Where
// all operands share one dense layout that run is everything: M = 1.
inline void choose_columns(Plan &plan) {
  int count = plan.op->operand_count(), previous = -1, begin = plan.ndim;
  for (int i = plan.ndim - 1; i >= 0; --i) {
    int d = plan.order[i];
    if (plan.sizes[d] != 1) {
      bool merges = true;
      for (int k = 0; previous >= 0 && merges && k < count; ++k) {
        const Operand &operand = plan.operands[k];
        if (!plan.exists(k)) continue;
        const int64_t *strides = operand.kernel_strides();
        merges = strides[d] == strides[previous] * plan.sizes[previous];
      }
      if (!merges) break;
      previous = d;
    }
    begin = i;
  }
  plan.column_begin = begin;
  plan.N = 1;
  for (int i = begin; i < plan.ndim; ++i) plan.N *= plan.sizes[plan.order[i]];
  plan.M = plan.numel / plan.N;
}

} // namespace avo

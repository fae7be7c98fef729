// The arguments of one call, as the planner sees them: no torch types, so that a call can also be imagined, and so
// that they can come from the stack of the stable ABI or from the accelerator (csrc/torch).
#pragma once

#include <cstdint>

#include "layout.h"
#include "table.h"

struct AtenTensorOpaque; // what torch's AtenTensorHandle points to

namespace avo {

// Left uninitialised: a call fills what its operator has, no more.
struct TensorView {
  AtenTensorOpaque *handle; // borrowed; of an imagined call there is none
  const void *data;
  const int64_t *sizes;
  const int64_t *strides;
  int32_t ndim;
  Dtype dtype; // None: one that kernels do not know
  int32_t torch_dtype;
  bool cuda;
  int32_t device;
};

struct Argument {
  bool present; // false: None
  TensorView tensor;
  double number;       // float
  int64_t integer;     // int; the index of a str's choice
  const int64_t *list; // ints
  int32_t length;      // of ints; of a mask and of text, where the caller leaves their check to check_arguments
  const char *text;    // str, likewise: check_arguments makes it `integer`
  uint64_t bits;       // mask
};

struct Arguments {
  Argument of[kMaxOperands];

  // Room for the values of int lists.
  int64_t pool[4 * kMaxDims];
  int pool_used = 0;
  int64_t *take(const Op &op, const ArgSpec &arg, int64_t count);
};

// The index of a str argument's value; throws when it is not among the choices.
int64_t choice_of(const Op &op, const ArgSpec &arg, const char *value, size_t length);

void check_mask_length(const Op &op, const ArgSpec &arg, int64_t length);
void check_list_length(const Op &op, const ArgSpec &arg, int64_t length);

// Both of these checks, for every argument.
void check_arguments(const Op &op, Arguments &args);

} // namespace avo

// One call of an operator over lists of tensors: its arguments, checked, and its execution.
#pragma once

#include "list_table.h"
#include "plan.h"
#include "tensor.h"

namespace avo {

// A number of a call or of a tensor: its value, or where it lies.
struct ListNumber {
  double value = 0;
  const void *data = nullptr; // null: by value
  Dtype dtype = Dtype::F64;

  double read() const; // on the CPU
};

// One tensor of each list. Its operands all fill their memory in one order.
struct ListItem {
  void *data[kMostLists]; // operands, then numbers
  Dtype dtype[kMostLists];
  int64_t numel = 0;

  bool same_dtypes(const ListItem &other, int lists) const {
    for (int k = 0; k < lists; ++k)
      if (dtype[k] != other.dtype[k]) return false;
    return true;
  }
};

struct ListPlan {
  const ListOp *op = nullptr;
  Target target;
  std::vector<ListNumber> numbers;
  std::vector<ListItem> items; // those with elements, neighbours of the same dtypes
  bool wide = false;           // some operand is of float64

  // Where items of other dtypes begin, and the end.
  std::vector<size_t> groups() const;
};

// A boxed call, from the stack.
void call_list(const ListOverload &overload, StableIValue *stack, uint64_t arguments, uint64_t results);

// Each runs a plan of its device; false, with nothing done, when a kernel could not be had.
bool run_list_cpu(const ListPlan &plan);
bool run_list_cuda(const ListPlan &plan);

// The same for an operator that reduces, which writes its result, of the dtype `wide` says.
bool reduce_list_cpu(const ListPlan &plan, void *result);
bool reduce_list_cuda(const ListPlan &plan, const OwnedTensor &result);

} // namespace avo

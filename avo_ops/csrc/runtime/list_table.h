// Operators over lists of tensors: their table, and what runs of it.
//
// Its text form, which registry/native.py writes:
//
//   lists 1                                      version of this text
//   op NAMESPACE NAME DEFINITION SHARED          the op that is its definition; how many numbers the elements of a
//   tensor share arg NAME written | tensors | numbers         a list: of tensors that are written, or read; of one
//   number each arg NAME float | bool | tensor ABSENT        a number; ABSENT: what None stands for arg NAME unless a
//   number; where it is not 0 nothing is written overload NAME ARG...                         the float arguments that
//   it takes as tensors numbers SYMBOL                               the CPU kernel of the shared numbers, in double
//   elements SYMBOL BUFFERS                      that of the elements
//   reduces                                      its result is a number: the first kernel makes it of the sum of what
//   the
//                                                second gives of parts of each tensor, in double
//   operands ARG...                              of the elements' kernel
//   scalars INDEX...                             of the elements' kernel, among the shared numbers
#pragma once

#include <functional>
#include <map>
#include <mutex>

#include "../common/list.h"
#include "table.h"

namespace avo {

inline constexpr int kMostLists = 8;

enum class ListArgKind : uint8_t { Written, Tensors, Numbers, Float, Bool, Tensor, Unless };

inline bool is_list(ListArgKind kind) { return kind <= ListArgKind::Numbers; }

struct ListArg {
  std::string name;
  ListArgKind kind = ListArgKind::Tensors;
  double absent = 0; // of a tensor
};

// The kernel for one combination of dtypes, which is a unit of its own.
struct ListKernel {
  Family family;
  Variant variant;
  std::atomic<uint64_t> calls{0};
};

struct ListOp {
  std::string space, name, qualified, definition; // the last: the op that is its definition
  std::vector<ListArg> args;
  std::vector<int> lists;   // arguments: the operands first, then those of numbers
  std::vector<int> numbers; // arguments: those of one number that kernels take, and last that which skips a call
  int operands = 0;         // of these lists, of whole tensors
  bool skips = false;
  bool reduces = false;
  int shared = 0;
  CpuCase find, elements; // `operands` and `scalars` of the second are places in lists and shared numbers

  mutable std::atomic<uint64_t> definitions{0}, empties{0}, copies{0};
  // By unit; made when first used. Guarded by list_mutex.
  mutable std::map<std::string, std::unique_ptr<ListKernel>> kernels;

  // A kernel that reduces has one number, the address of its sums.
  ListLayout layout() const { return {reduces ? 1 : static_cast<int>(numbers.size()), static_cast<int>(lists.size())}; }
};

struct ListOverload {
  const ListOp *op = nullptr;
  std::string name;         // empty: the op itself
  std::vector<bool> tensor; // of each argument: a float that is given as a tensor
};

struct ListTable {
  std::vector<std::unique_ptr<ListOp>> ops;
  std::vector<std::unique_ptr<ListOverload>> overloads;
};

// Throws with the line number.
ListTable parse_lists(const char *text);

// Parses a table and registers its operators for CPU and CUDA, whose schemas must be defined already. Throws.
void register_lists(const char *text);

// Free in a child that was forked while another thread held it.
std::mutex &list_mutex();

// In the order of registration, with list_mutex held.
void for_each_list(const std::function<void(const ListOp &)> &f);

} // namespace avo

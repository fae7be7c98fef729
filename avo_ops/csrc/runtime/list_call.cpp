// From the stack of a call to its plan: what the lists hold is checked, and what does not lie flat is copied, there and
// back.
#include "list_call.h"

#include <algorithm>
#include <bit>

#include "cuda_kernels.h"
#include "emulation.h"
#include "stack.h"
#include "strict.h"

namespace avo {
namespace {

// The arguments on the stack, and the elements of lists, which torch_delete_list leaves alone. Owns them until release.
class ListStack {
public:
  ListStack(const ListOverload &overload, StableIValue *stack) : overload_(&overload), stack_(stack) {
    for (int arg : overload.op->lists) {
      size_t size = 0;
      check_shim(torch_list_size(list(arg), &size), "access to a list");
      auto &tensors = lists_.emplace_back(size);
      for (size_t i = 0; i < size; ++i) {
        StableIValue item = 0;
        check_shim(torch_list_get_item(list(arg), i, &item), "access to a list");
        tensors[i] = reinterpret_cast<AtenTensorHandle>(item);
      }
    }
  }
  ListStack(const ListStack &) = delete;
  ~ListStack() {
    if (!overload_) return;
    const ListOp &op = *overload_->op;
    for (size_t k = 0; k < op.lists.size(); ++k) {
      for (AtenTensorHandle tensor : lists_[k]) aoti_torch_delete_tensor_object(tensor);
      torch_delete_list(list(op.lists[k]));
    }
    for (int arg : op.numbers) {
      if (AtenTensorHandle handle = tensor(arg)) aoti_torch_delete_tensor_object(handle);
      if (optional(arg)) delete reinterpret_cast<StableIValue *>(stack_[arg]);
    }
  }

  // Somebody else frees the arguments.
  void release() { overload_ = nullptr; }

  const std::vector<AtenTensorHandle> &tensors(size_t k) const { return lists_[k]; }

  // The tensor of a number; null for None, or where it is a number on the stack.
  AtenTensorHandle tensor(int arg) const {
    if (overload_->tensor[arg]) return reinterpret_cast<AtenTensorHandle>(stack_[arg]);
    auto *boxed = optional(arg) ? reinterpret_cast<StableIValue *>(stack_[arg]) : nullptr;
    return boxed ? reinterpret_cast<AtenTensorHandle>(*boxed) : nullptr;
  }
  double value(int arg) const {
    const ListArg &spec = overload_->op->args[arg];
    if (spec.kind == ListArgKind::Float) return std::bit_cast<double>(stack_[arg]);
    return spec.kind == ListArgKind::Bool ? (stack_[arg] & 0xff) != 0 : spec.absent;
  }

private:
  StableListHandle list(int arg) const { return reinterpret_cast<StableListHandle>(stack_[arg]); }
  bool optional(int arg) const {
    ListArgKind kind = overload_->op->args[arg].kind;
    return kind == ListArgKind::Tensor || kind == ListArgKind::Unless;
  }

  const ListOverload *overload_;
  StableIValue *stack_;
  std::vector<std::vector<AtenTensorHandle>> lists_;
};

std::string shape(const TensorView &tensor) { return list_text(tensor.sizes, tensor.ndim); }
std::string device_name(const TensorView &tensor) {
  return tensor.cuda ? "cuda:" + std::to_string(tensor.device) : "cpu";
}
bool same_device(const TensorView &a, const TensorView &b) {
  return a.cuda == b.cuda && (!a.cuda || a.device == b.device);
}

// A tensor that a message can name.
struct Named {
  const ListOp &op;
  const std::string &list;
  int64_t index; // -1: no list

  std::string text() const { return index < 0 ? list : join(list, "[", index, "]"); }

  TensorView view(AtenTensorHandle handle) const {
    TensorView view;
    if (!read_view(handle, view)) fail(op.name, ": ", text(), " must be a tensor, but is None");
    if (view.dtype == Dtype::None || index_of(view.dtype) >= kDtypes)
      fail(op.name, ": ", text(), " must be a floating-point tensor (float32, float16, bfloat16 or float64), but is ",
           torch_dtype_name(view.torch_dtype));
    if (view.ndim > kMaxDims)
      fail(op.name, ": ", text(), " must have at most ", kMaxDims, " dimensions, but has ", view.ndim);
    return view;
  }
  void check_number(const TensorView &view) const {
    if (product(view.sizes, view.ndim) != 1)
      fail(op.name, ": ", text(), " must be a tensor of one number, but has shape ", shape(view));
  }
  void check_device(const TensorView &view, const TensorView &first) const {
    if (!same_device(view, first))
      fail(op.name, ": ", text(), " must be on ", device_name(first), " like ", op.args[op.lists[0]].name,
           "[0], but is on ", device_name(view));
  }
};

bool has_zero_stride(const TensorView &view) {
  for (int d = 0; d < view.ndim; ++d)
    if (view.sizes[d] > 1 && view.strides[d] == 0) return true;
  return false;
}

bool fills_memory(const TensorView &view) {
  int order[kMaxDims];
  order_by_strides(view.sizes, view.ndim, view.strides, order);
  return is_dense(view.sizes, view.ndim, view.strides, order);
}

class Call {
public:
  Call(const ListOp &op, const ListStack &stack) : op_(op), stack_(stack) { plan_.op = &op; }

  const ListPlan &plan() {
    check_lists();
    plan_numbers();
    return plan_;
  }

  // Copies what does not lie flat into temporaries.
  void copy_in() {
    for (const Copy &copy : copies_) {
      check_copy(op_.name, copy.name);
      op_.copies.fetch_add(1, std::memory_order_relaxed);
      const TensorView &view = copy.view;
      bool cuda = plan_.target.has_cuda_memory();
      temporaries_.push_back(
          OwnedTensor::empty(view.ndim, view.sizes, copy.strides.data(), view.dtype, cuda, plan_.target.device));
      temporaries_.back().copy_from(view.handle);
      plan_.items[copy.item].data[copy.list] = temporaries_.back().data();
    }
  }
  void copy_back() const {
    for (size_t i = 0; i < copies_.size(); ++i)
      if (copies_[i].written)
        check_shim(aoti_torch_copy_(copies_[i].view.handle, temporaries_[i].get(), 0), "copy of a tensor");
  }

  // Neighbours have the same dtypes; within these the order of the lists stays.
  void sort() {
    int lists = static_cast<int>(op_.lists.size());
    auto less = [&](const ListItem &a, const ListItem &b) {
      return std::lexicographical_compare(a.dtype, a.dtype + lists, b.dtype, b.dtype + lists);
    };
    std::stable_sort(plan_.items.begin(), plan_.items.end(), less);
  }

private:
  struct Copy {
    TensorView view;
    std::string name;
    size_t item;
    int list;
    bool written;
    std::vector<int64_t> strides;
  };

  void check_lists() {
    const std::string &first = op_.args[op_.lists[0]].name;
    size_t count = stack_.tensors(0).size();
    for (size_t k = 1; k < op_.lists.size(); ++k)
      if (stack_.tensors(k).size() != count)
        fail(op_.name, ": ", op_.args[op_.lists[k]].name, " must have ", count, " tensors like ", first, ", but has ",
             stack_.tensors(k).size());
    plan_.items.reserve(count);
    for (size_t i = 0; i < count; ++i) check_item(i);
    if (any_ && first_.cuda) plan_.target = cuda_target(first_.device);
    else if (any_ && emulating()) plan_.target = emulated_target();
  }

  void check_item(size_t i) {
    ListItem item;
    TensorView views[kMostLists];
    for (size_t k = 0; k < op_.lists.size(); ++k) {
      const ListArg &spec = op_.args[op_.lists[k]];
      const Named named{op_, spec.name, static_cast<int64_t>(i)};
      TensorView &view = views[k] = named.view(stack_.tensors(k)[i]);
      if (!any_) first_ = view;
      any_ = true;
      named.check_device(view, first_);
      if (spec.kind == ListArgKind::Numbers) named.check_number(view);
      else if (!std::equal(view.sizes, view.sizes + view.ndim, views[0].sizes, views[0].sizes + views[0].ndim))
        fail(op_.name, ": ", named.text(), " must have shape ", shape(views[0]), " like ", op_.args[op_.lists[0]].name,
             "[", i, "], but has shape ", shape(view));
      if (spec.kind == ListArgKind::Written && has_zero_stride(view))
        fail(op_.name, ": ", named.text(), " is written, but several of its elements are one in memory");
      item.data[k] = const_cast<void *>(view.data);
      item.dtype[k] = view.dtype;
      plan_.wide |= static_cast<int>(k) < op_.operands && view.dtype == Dtype::F64;
    }
    item.numel = product(views[0].sizes, views[0].ndim);
    if (item.numel == 0) return;
    plan_.items.push_back(item);
    plan_copies(i, views);
  }

  // All operands in the layout of the first, if that is dense.
  void plan_copies(size_t i, const TensorView *views) {
    const TensorView &first = views[0];
    std::vector<int64_t> contiguous(first.ndim);
    const int64_t *layout = first.strides;
    if (!fills_memory(first)) {
      contiguous_strides(first.sizes, first.ndim, contiguous.data());
      layout = contiguous.data();
    }
    for (int k = 0; k < op_.operands; ++k) {
      if (same_layout(first.sizes, first.ndim, views[k].strides, layout)) continue;
      const ListArg &spec = op_.args[op_.lists[k]];
      copies_.push_back({views[k],
                         join(spec.name, "[", i, "]"),
                         plan_.items.size() - 1,
                         k,
                         spec.kind == ListArgKind::Written,
                         {layout, layout + first.ndim}});
    }
  }

  void plan_numbers() {
    for (int arg : op_.numbers) {
      const Named named{op_, op_.args[arg].name, -1};
      ListNumber number;
      number.value = 0;
      if (AtenTensorHandle handle = stack_.tensor(arg)) {
        TensorView view = named.view(handle);
        named.check_number(view);
        // One of the CPU is read now, which waits for nothing.
        if (view.cuda && any_) named.check_device(view, first_);
        number.data = view.data;
        number.dtype = view.dtype;
        if (!view.cuda && !plan_.target.emulated) number = {number.read(), nullptr, Dtype::F64};
      } else {
        number.value = stack_.value(arg);
      }
      plan_.numbers.push_back(number);
    }
  }

  const ListOp &op_;
  const ListStack &stack_;
  ListPlan plan_;
  TensorView first_;
  bool any_ = false;
  std::vector<Copy> copies_;
  std::vector<OwnedTensor> temporaries_;
};

void run_definition(const ListOverload &overload, ListStack &inputs, StableIValue *stack) {
  const ListOp &op = *overload.op;
  op.definitions.fetch_add(1, std::memory_order_relaxed);
  inputs.release(); // the dispatcher takes the arguments, also when it fails
  check_shim(torch_call_dispatcher(op.definition.c_str(), overload.name.c_str(), stack, TORCH_ABI_VERSION),
             op.definition.c_str());
}

bool run(const ListPlan &plan) { return plan.target.cuda ? run_list_cuda(plan) : run_list_cpu(plan); }

bool reduce(const ListPlan &plan, OwnedTensor &result) {
  Dtype dtype = plan.wide ? Dtype::F64 : Dtype::F32;
  result = OwnedTensor::empty(0, nullptr, nullptr, dtype, plan.target.has_cuda_memory(), plan.target.device);
  return plan.target.cuda ? reduce_list_cuda(plan, result) : reduce_list_cpu(plan, result.data());
}

} // namespace

double ListNumber::read() const {
  if (!data) return value;
  switch (dtype) {
  case Dtype::F32: return *static_cast<const float *>(data);
  case Dtype::F64: return *static_cast<const double *>(data);
  default: return half_value(dtype, *static_cast<const uint16_t *>(data));
  }
}

std::vector<size_t> ListPlan::groups() const {
  std::vector<size_t> found{0};
  int lists = static_cast<int>(op->lists.size());
  for (size_t i = 1; i < items.size(); ++i)
    if (!items[i].same_dtypes(items[i - 1], lists)) found.push_back(i);
  found.push_back(items.size());
  return found;
}

void call_list(const ListOverload &overload, StableIValue *stack, uint64_t arguments, uint64_t results) {
  const ListOp &op = *overload.op;
  if (arguments != op.args.size() || results != uint64_t{op.reduces})
    fail(op.qualified, ": the schema has ", arguments, " arguments and ", results, " returns, the table ",
         op.args.size(), " and ", int{op.reduces});
  OwnedTensor result;
  {
    ListStack inputs(overload, stack);
    Call call(op, inputs);
    const ListPlan &plan = call.plan();
    if (plan.items.empty()) op.empties.fetch_add(1, std::memory_order_relaxed);
    call.copy_in();
    call.sort();
    if (!(op.reduces ? reduce(plan, result) : plan.items.empty() || run(plan))) {
      check_definition(op.name, kNoKernel);
      run_definition(overload, inputs, stack);
      return;
    }
    call.copy_back();
  }
  if (op.reduces) stack[0] = reinterpret_cast<StableIValue>(result.release());
}

} // namespace avo

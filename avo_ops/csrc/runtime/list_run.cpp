// Execution of calls of operators over lists: on the CPU in one parallel loop over all elements, on CUDA in as few
// launches as their tensors fit into.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "cpu_kernels.h"
#include "launcher.h"
#include "list_call.h"
#include "parallel.h"

namespace avo {
namespace {

bool is_wide(const ListOp &op, const ListItem &item) {
  return std::find(item.dtype, item.dtype + op.operands, Dtype::F64) != item.dtype + op.operands;
}

// ---- CPU ----

// Elements of all tensors of a call, one after the other, that one thread treats.
class CpuRange {
public:
  CpuRange(const ListPlan &plan, const CpuKernel &find, const CpuKernel &elements)
      : plan_(plan), op_(*plan.op), find_(find), elements_(elements) {
    for (const ListItem &item : plan.items) ends_.push_back(total() + item.numel);
    buffer_bytes_ = op_.elements.buffers * ceil_div((AVO_POINTWISE_BLOCK + AVO_BUFFER_SLACK) * 8, 64) * 64;
  }

  int64_t total() const { return ends_.empty() ? 0 : ends_.back(); }
  bool out_of_memory() const { return out_of_memory_.load(); }

  void operator()(int64_t begin, int64_t end) {
    void *scratch = thread_scratch(static_cast<size_t>(buffer_bytes_));
    if (!scratch) return out_of_memory_.store(true);
    size_t i = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin());
    for (; begin < end; ++i) {
      int64_t start = ends_[i] - plan_.items[i].numel, last = std::min(end, ends_[i]);
      treat(plan_.items[i], begin - start, last - start, scratch);
      begin = last;
    }
  }

private:
  void treat(const ListItem &item, int64_t begin, int64_t end, void *scratch) const {
    AvoOperand operands[kMaxOperands];
    for (size_t k = 0; k < op_.elements.operands.size(); ++k) {
      int list = op_.elements.operands[k];
      operands[k] = AvoOperand{};
      operands[k].data = item.data[list];
      operands[k].dtype = index_of(item.dtype[list]);
      operands[k].col_stride = 1;
    }
    double given[kMaxScalars + kMostLists], shared[kMaxScalars], scalars[kMaxScalars];
    size_t count = 0, single = plan_.numbers.size() - op_.skips;
    for (size_t k = 0; k < single; ++k) given[count++] = plan_.numbers[k].read();
    for (size_t k = op_.operands; k < op_.lists.size(); ++k)
      given[count++] = ListNumber{0, item.data[k], item.dtype[k]}.read();
    AvoCpuArgs args{};
    args.operands = operands;
    args.scalars = given;
    args.partials = shared;
    args.M = args.row_dims = args.panel_rows = 1;
    args.N = item.numel;
    args.row_sizes[0] = 1;
    find_.f64(&args, 0, 1, 0, 1, 0, nullptr);
    for (size_t k = 0; k < op_.elements.scalars.size(); ++k) scalars[k] = shared[op_.elements.scalars[k]];
    args.scalars = scalars;
    args.partials = nullptr;
    (is_wide(op_, item) ? elements_.f64 : elements_.f32)(&args, 0, 1, begin, end, 0, scratch);
  }

  const ListPlan &plan_;
  const ListOp &op_;
  const CpuKernel &find_, &elements_;
  std::vector<int64_t> ends_;
  int64_t buffer_bytes_;
  std::atomic<bool> out_of_memory_{false};
};

// The sum of what a kernel gives of the parts of all tensors, each of up to so many elements, in their order.
class CpuSum {
public:
  static constexpr int64_t kPart = 1024;

  CpuSum(const ListPlan &plan, const CpuKernel &elements) : plan_(plan), elements_(elements) {
    for (const ListItem &item : plan.items) ends_.push_back(parts() + ceil_div(item.numel, kPart));
    partials_.resize(static_cast<size_t>(parts()));
    buffer_bytes_ = plan.op->elements.buffers * ceil_div((kPart + AVO_BUFFER_SLACK) * 8, 64) * 64;
  }

  double total() {
    parallel_for(parts(), std::max<int64_t>(1, kGrain / kPart), *this);
    if (out_of_memory_.load()) fail(plan_.op->name, ": out of memory for the buffers of the CPU kernel");
    double total = 0;
    for (double partial : partials_) total += partial;
    return total;
  }

  void operator()(int64_t begin, int64_t end) {
    void *scratch = thread_scratch(static_cast<size_t>(buffer_bytes_));
    if (!scratch) return out_of_memory_.store(true);
    size_t i = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin());
    for (; begin < end; ++begin) {
      while (begin == ends_[i]) ++i;
      const ListItem &item = plan_.items[i];
      int64_t first = (begin - (i ? ends_[i - 1] : 0)) * kPart;
      AvoOperand operands[2]{};
      operands[0].data = static_cast<char *>(item.data[0]) + first * size_of(item.dtype[0]);
      operands[0].dtype = index_of(item.dtype[0]);
      operands[0].col_stride = 1;
      operands[1].data = &partials_[static_cast<size_t>(begin)];
      operands[1].dtype = AVO_F64;
      AvoCpuArgs args{};
      args.operands = operands;
      args.M = args.row_dims = args.panel_rows = 1;
      args.N = std::min(kPart, item.numel - first);
      args.row_sizes[0] = 1;
      elements_.f64(&args, 0, 1, 0, args.N, 0, scratch);
    }
  }

private:
  int64_t parts() const { return ends_.empty() ? 0 : ends_.back(); }

  const ListPlan &plan_;
  const CpuKernel &elements_;
  std::vector<int64_t> ends_;
  std::vector<double> partials_;
  int64_t buffer_bytes_;
  std::atomic<bool> out_of_memory_{false};
};

// ---- CUDA ----

std::string unit_of(const ListOp &op, const ListItem &item) {
  std::string unit = op.name + "_";
  for (int k = 0; k < op.operands; ++k) unit += join("_", short_name(item.dtype[k]));
  return unit;
}

// The kernel of a unit that is called as the unit, or has something behind that name.
ListKernel &kernel_of(const ListOp &op, const std::string &unit, const char *suffix = "") {
  std::lock_guard<std::mutex> lock(list_mutex());
  std::unique_ptr<ListKernel> &kernel = op.kernels[unit + suffix];
  if (!kernel) {
    kernel = std::make_unique<ListKernel>();
    kernel->family.name = kernel->variant.unit = unit;
    kernel->variant.symbol = unit + suffix;
    kernel->variant.block = kListBlock;
  }
  return *kernel;
}

// A kernel and what its launcher knows it by.
struct Loaded {
  ListKernel *kernel;
  void *handle;

  void launch(Launcher &launcher, const ListOp &op, uint32_t blocks, void **params) const {
    const uint32_t grid[3] = {blocks, 1, 1};
    launcher.launch(op.name, kernel->variant, grid, handle, params);
    kernel->calls.fetch_add(1, std::memory_order_relaxed);
  }
};

Loaded load(Launcher &launcher, ListKernel &kernel) {
  return {&kernel, launcher.kernel(kernel.family, kernel.variant)};
}

// The kernel of each group of dtypes; nothing if one could not be had.
std::vector<Loaded> load_groups(Launcher &launcher, const ListPlan &plan, const std::vector<size_t> &groups) {
  std::vector<Loaded> found;
  for (size_t g = 0; g + 1 < groups.size(); ++g) {
    found.push_back(load(launcher, kernel_of(*plan.op, unit_of(*plan.op, plan.items[groups[g]]))));
    if (!found.back().handle) return {};
  }
  return found;
}

// The parameter of one launch (common/list.h), and its grid.
class ListParameter {
public:
  explicit ListParameter(const ListPlan &plan) : op_(*plan.op), layout_(op_.layout()), codes_(layout_.codes_at()) {
    for (const ListNumber &number : plan.numbers) {
      uint64_t bits = 0;
      if (number.data) bits = reinterpret_cast<uint64_t>(number.data);
      else std::memcpy(&bits, &number.value, sizeof bits);
      put<uint64_t>(8 * used_codes_, bits);
      code(number.data ? index_of(number.dtype) : kListValue);
    }
  }

  // Begins a launch for items of these dtypes.
  void begin(const ListItem &like) {
    count_ = 0;
    blocks_ = 0;
    used_codes_ = static_cast<int>(op_.numbers.size());
    for (size_t k = op_.operands; k < op_.lists.size(); ++k) code(index_of(like.dtype[k]));
  }
  bool is_full() const { return count_ == layout_.capacity(); }

  // Whether there was room for the blocks of one more item.
  bool add(const ListItem &item) {
    int64_t blocks = blocks_ + ceil_div(item.numel, kListChunk);
    if (is_full() || blocks > INT32_MAX) return false;
    blocks_ = blocks;
    for (size_t k = 0; k < op_.lists.size(); ++k)
      put(layout_.pointers_at() + 8 * (static_cast<int>(k) * layout_.capacity() + count_), item.data[k]);
    put<int64_t>(layout_.sizes_at() + 8 * count_, item.numel);
    put<int32_t>(layout_.ends_at() + 4 * count_, static_cast<int32_t>(blocks));
    put<int32_t>(layout_.count_at(), ++count_);
    return true;
  }

  // Of the operator that reduces: where the sums of this launch go.
  void set_address(const void *data) { put(0, data); }

  uint32_t blocks() const { return static_cast<uint32_t>(blocks_); }
  int count() const { return count_; }
  void *data() { return bytes_; }

private:
  template <class T> void put(int at, T value) { std::memcpy(bytes_ + at, &value, sizeof value); }
  void code(int value) { put<uint8_t>(codes_ + used_codes_++, static_cast<uint8_t>(value)); }

  const ListOp &op_;
  ListLayout layout_;
  int codes_, used_codes_ = 0, count_ = 0;
  int64_t blocks_ = 0;
  alignas(16) char bytes_[kListBytes] = {};
};

// Launches the kernels of all groups: `before` sees the parameter of each launch, and the blocks of those before it.
template <class F>
void launch_groups(Launcher &launcher, const ListPlan &plan, const std::vector<size_t> &groups,
                   const std::vector<Loaded> &kernels, F before) {
  const ListOp &op = *plan.op;
  ListParameter parameter(plan);
  int64_t blocks = 0;
  for (size_t g = 0; g + 1 < groups.size(); ++g) {
    for (size_t i = groups[g]; i < groups[g + 1];) {
      parameter.begin(plan.items[i]);
      while (i < groups[g + 1] && parameter.add(plan.items[i])) ++i;
      if (parameter.count() == 0) fail(op.name, ": a tensor has too many elements");
      before(parameter, blocks);
      blocks += parameter.blocks();
      void *params[] = {parameter.data()};
      kernels[g].launch(launcher, op, parameter.blocks(), params);
    }
  }
}

} // namespace

bool run_list_cpu(const ListPlan &plan) {
  const ListOp &op = *plan.op;
  const CpuKernel *find = cpu_kernel(op.find), *elements = cpu_kernel(op.elements);
  if (!find || !elements) return false;
  op.elements.calls.fetch_add(1, std::memory_order_relaxed);
  if (op.skips && plan.numbers.back().read() != 0) return true;
  CpuRange range(plan, *find, *elements);
  parallel_for(range.total(), kGrain, range);
  if (range.out_of_memory()) fail(op.name, ": out of memory for the buffers of the CPU kernel");
  return true;
}

bool run_list_cuda(const ListPlan &plan) {
  std::unique_ptr<Launcher> launcher = plan.target.emulated ? emulator_launcher() : driver_launcher(plan.target);
  if (!launcher) return false;
  const std::vector<size_t> groups = plan.groups();
  const std::vector<Loaded> kernels = load_groups(*launcher, plan, groups);
  if (kernels.empty()) return false;
  launch_groups(*launcher, plan, groups, kernels, [](ListParameter &, int64_t) {});
  return true;
}

bool reduce_list_cpu(const ListPlan &plan, void *result) {
  const ListOp &op = *plan.op;
  const CpuKernel *find = cpu_kernel(op.find), *elements = cpu_kernel(op.elements);
  if (!find || !elements) return false;
  op.elements.calls.fetch_add(1, std::memory_order_relaxed);
  CpuSum sum(plan, *elements);
  double total = sum.total(), found = 0;
  AvoCpuArgs args{};
  args.scalars = &total;
  args.partials = &found;
  find->f64(&args, 0, 1, 0, 1, 0, nullptr);
  if (plan.wide) *static_cast<double *>(result) = found;
  else *static_cast<float *>(result) = static_cast<float>(found);
  return true;
}

bool reduce_list_cuda(const ListPlan &plan, const OwnedTensor &result) {
  const ListOp &op = *plan.op;
  std::unique_ptr<Launcher> launcher = plan.target.emulated ? emulator_launcher() : driver_launcher(plan.target);
  if (!launcher) return false;
  const std::vector<size_t> groups = plan.items.empty() ? std::vector<size_t>{0} : plan.groups();
  const std::vector<Loaded> kernels = load_groups(*launcher, plan, groups);
  if (kernels.empty() && !plan.items.empty()) return false;
  const std::string unit = plan.items.empty() ? op.name + "__f32" : kernels[0].kernel->variant.unit;
  const Loaded finish = load(*launcher, kernel_of(op, unit, "_finish"));
  if (!finish.handle) return false;

  int64_t count = 0, stride = 1;
  for (const ListItem &item : plan.items) count += ceil_div(item.numel, kListChunk);
  int64_t room = std::max<int64_t>(count, 1);
  const Target &target = plan.target;
  const OwnedTensor partials =
      OwnedTensor::empty(1, &room, &stride, Dtype::F64, target.has_cuda_memory(), target.device);
  launcher->allocated(partials);
  launcher->allocated(result);
  auto *sums = static_cast<double *>(partials.data());
  launch_groups(*launcher, plan, groups, kernels,
                [&](ListParameter &parameter, int64_t blocks) { parameter.set_address(sums + blocks); });
  void *to = result.data();
  int wide = plan.wide;
  void *params[] = {&sums, &count, &to, &wide};
  finish.launch(*launcher, op, 1, params);
  return true;
}

} // namespace avo

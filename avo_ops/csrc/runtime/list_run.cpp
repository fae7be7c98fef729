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

// ---- CUDA ----

std::string unit_of(const ListOp &op, const ListItem &item) {
  std::string unit = op.name + "_";
  for (int k = 0; k < op.operands; ++k) unit += join("_", short_name(item.dtype[k]));
  return unit;
}

ListKernel &kernel_of(const ListOp &op, const std::string &unit) {
  std::lock_guard<std::mutex> lock(list_mutex());
  std::unique_ptr<ListKernel> &kernel = op.kernels[unit];
  if (!kernel) {
    kernel = std::make_unique<ListKernel>();
    kernel->family.name = kernel->variant.symbol = kernel->variant.unit = unit;
    kernel->variant.block = kListBlock;
  }
  return *kernel;
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
  const ListOp &op = *plan.op;
  std::unique_ptr<Launcher> launcher = plan.target.emulated ? emulator_launcher() : driver_launcher(plan.target);
  if (!launcher) return false;
  const std::vector<size_t> groups = plan.groups();
  std::vector<std::pair<ListKernel *, void *>> kernels;
  for (size_t g = 0; g + 1 < groups.size(); ++g) {
    ListKernel &kernel = kernel_of(op, unit_of(op, plan.items[groups[g]]));
    kernels.emplace_back(&kernel, launcher->kernel(kernel.family, kernel.variant));
    if (!kernels.back().second) return false;
  }
  ListParameter parameter(plan);
  for (size_t g = 0; g + 1 < groups.size(); ++g) {
    auto [kernel, loaded] = kernels[g];
    for (size_t i = groups[g]; i < groups[g + 1];) {
      parameter.begin(plan.items[i]);
      while (i < groups[g + 1] && parameter.add(plan.items[i])) ++i;
      if (parameter.count() == 0) fail(op.name, ": a tensor has too many elements");
      const uint32_t grid[3] = {parameter.blocks(), 1, 1};
      void *params[] = {parameter.data()};
      launcher->launch(op.name, kernel->variant, grid, loaded, params);
      kernel->calls.fetch_add(1, std::memory_order_relaxed);
    }
  }
  return true;
}

} // namespace avo

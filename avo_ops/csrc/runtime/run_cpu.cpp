// Execution on the CPU: cut the iteration space over torch's threads and call the kernel on the parts.
#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "cpu_kernels.h"
#include "parallel.h"
#include "run.h"

namespace avo {
namespace {

// What the threads of one call share.
struct CpuCall {
  AvoCpuArgs args{};
  AvoCpuKernel kernel = nullptr;
  size_t scratch_bytes = 0;
  std::atomic<bool> out_of_memory{false};

  void operator()(int64_t row_begin, int64_t row_end, int64_t col_begin, int64_t col_end, int64_t chunk) {
    void *scratch = scratch_bytes ? thread_scratch(scratch_bytes) : nullptr;
    if (scratch_bytes && !scratch) out_of_memory.store(true, std::memory_order_relaxed);
    else kernel(&args, row_begin, row_end, col_begin, col_end, chunk, scratch);
  }
};

constexpr int64_t kMostScratch = 4 << 20; // bytes, beyond which panels become smaller
constexpr int64_t kPanelRuns = 32; // at least, of a panel whose runs touch; of 16, float32 took up to a third longer

int64_t row_bytes(const Plan &plan, int64_t columns) {
  return ceil_div((columns + AVO_BUFFER_SLACK) * size_of(plan.compute), 64) * 64;
}

size_t scratch_bytes(const Plan &plan, const CpuCase &one, int64_t panel_rows) {
  int64_t bytes = one.pointwise ? row_bytes(plan, AVO_POINTWISE_BLOCK) : panel_rows * row_bytes(plan, plan.N);
  return static_cast<size_t>(one.buffers * bytes);
}

// Channels_last: neighbouring columns are apart, and the runs of neighbouring rows touch.
bool has_touching_runs(const Plan &plan, const AvoOperand &operand) {
  return operand.run_stride == 1 && operand.col_stride > 1 && operand.row_strides[plan.row_dims - 1] == plan.runs;
}

// Marks the operands whose rows lie nearer to each other than their columns. The rows of a panel.
int panel_rows(const Plan &plan, const CpuCase &one, AvoOperand *operands) {
  int last = plan.row_dims - 1, rows = AVO_PANEL_ROWS;
  if (plan.op->rule == Rule::Groups) { // as many as have two lines of floats; buffers of more would leave the cache
    while (rows > 1 && rows / 2 * plan.runs >= kPanelRuns) rows /= 2;
  }
  while (rows > 1 && one.buffers * rows * row_bytes(plan, plan.N) > kMostScratch) rows /= 2;
  if (one.pointwise || plan.N == 1 || plan.row_sizes[last] == 1 || rows == 1) return 1;
  bool any = false;
  for (size_t i = 0; i < one.operands.size(); ++i) {
    AvoOperand &operand = operands[i];
    if (!operand.data || plan.operands[one.operands[i]].span != Span::MN) continue;
    operand.panelled = operand.run ? has_touching_runs(plan, operand)
                                   : std::abs(operand.row_strides[last]) < std::abs(operand.col_stride);
    any |= operand.panelled;
  }
  return any ? rows : 1;
}

void fill_operand(const Plan &plan, const Operand &operand, void *data, AvoOperand &out) {
  out.data = data;
  out.dtype = index_of(operand.dtype);
  out.panelled = 0;
  out.col_stride = operand.col_stride;
  out.run = operand.run_stride ? plan.run : 0;
  out.run_stride = operand.run_stride;
  for (int i = 0; i < plan.row_dims; ++i) out.row_strides[i] = operand.row_strides[i];
}

// Row blocks alone, or, when there are few rows, column blocks of each row.
void run_rows(CpuCall &call, const Plan &plan, bool pointwise) {
  int64_t M = plan.M, N = plan.N;
  if (plan.numel <= kGrain) {
    call(0, M, 0, N, 0);
  } else if (!pointwise || (N < 2 * kGrain && M > 1)) {
    auto rows = [&](int64_t begin, int64_t end) { call(begin, end, 0, N, 0); };
    parallel_for(M, std::max<int64_t>(1, kGrain / N), rows);
  } else {
    int64_t blocks = ceil_div(N, kGrain);
    auto parts = [&](int64_t begin, int64_t end) {
      while (begin < end) { // whole stretches of a row at a time
        int64_t row = begin / blocks, last = std::min(end, (row + 1) * blocks);
        call(row, row + 1, (begin - row * blocks) * kGrain, std::min(N, (last - row * blocks) * kGrain), 0);
        begin = last;
      }
    };
    parallel_for(M * blocks, 1, parts);
  }
}

// Rows of one partial sum: a function of M and N only, so that sums repeat to the bit. At least eight rows,
// so that partials are small beside the operands, and at most 128 chunks. The sums of long runs are few.
int64_t chunk_rows(const Plan &plan) {
  int64_t least = plan.op->rule == Rule::Groups && plan.run >= 64 ? 1 : 8;
  return std::max({least, ceil_div(kGrain, plan.N), ceil_div(plan.M, 128)});
}

void run_sums(CpuCall &call, const Plan &plan, bool pointwise, int64_t chunks, int64_t rows) {
  // Few chunks: a pointwise kernel can also be cut in columns, which are summed independently of each other.
  int64_t blocks = 1;
  if (pointwise && plan.numel > kGrain) {
    int64_t wanted = ceil_div(2 * pool_threads(), chunks);
    blocks = std::clamp<int64_t>(wanted, 1, ceil_div(plan.N, AVO_POINTWISE_BLOCK));
  }
  int64_t columns = ceil_div(ceil_div(plan.N, blocks), 64) * 64;
  auto parts = [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      int64_t chunk = part / blocks, first = part % blocks * columns;
      if (first < plan.N)
        call(chunk * rows, std::min(plan.M, (chunk + 1) * rows), first, std::min(plan.N, first + columns), chunk);
    }
  };
  parallel_for(chunks * blocks, plan.numel <= kGrain ? chunks * blocks : 1, parts);
}

void run_finish(const CpuCall &call, const Plan &plan, AvoCpuFinish finish, int64_t chunks, int64_t sums, int64_t k,
                const AvoOperand &out) {
  auto columns = [&](int64_t begin, int64_t end) {
    finish(&call.args, chunks, sums, k, &out, begin, end, plan.compute == Dtype::F64);
  };
  parallel_for(plan.sum_columns, std::max<int64_t>(256, kGrain / chunks), columns);
}

} // namespace

bool run_cpu(const Plan &plan, const Arguments &args, OwnedTensor *returns) {
  const Op &op = *plan.op;
  const CpuCase &one = plan.chosen->cpu;
  const CpuKernel *kernel = one.present ? cpu_kernel(one) : nullptr;
  if (!kernel || (!one.sums.empty() && !kernel->finish)) return false;
  AvoCpuKernel function = plan.compute == Dtype::F64 ? kernel->f64 : kernel->f32;
  if (!function) return false; // compiled at run time, for the other
  one.calls.fetch_add(1, std::memory_order_relaxed);

  int arguments = static_cast<int>(op.args.size());
  for (size_t i = 0; i < op.returns.size(); ++i) {
    const Operand &operand = plan.operands[arguments + i];
    if (operand.present) returns[i] = allocate_return(plan, operand);
  }

  OwnedTensor temporaries[kMaxOperands];
  auto data_of = [&](int k) -> void * {
    const Operand &operand = plan.operands[k];
    if (!operand.present) return nullptr;
    if (op.is_return(k)) return data_of_return(plan, k, returns);
    if (!operand.copy) return const_cast<void *>(operand.data); // kernels do not write to arguments
    if (!temporaries[k]) temporaries[k] = allocate_temporary(plan, k, args);
    return temporaries[k].data();
  };

  AvoOperand operands[kMaxOperands];
  for (size_t i = 0; i < one.operands.size(); ++i) {
    const Operand &operand = plan.operands[one.operands[i]];
    if (operand.present) fill_operand(plan, operand, data_of(one.operands[i]), operands[i]);
    else operands[i] = AvoOperand{};
  }
  double scalars[kMaxScalars];
  for (size_t i = 0; i < one.scalars.size(); ++i) scalars[i] = scalar_value(plan, args, one.scalars[i]);

  CpuCall call;
  call.args.operands = operands;
  call.args.scalars = scalars;
  call.args.M = plan.M;
  call.args.N = plan.N;
  bool by_runs = op.rule == Rule::Groups;
  call.args.run = by_runs ? plan.run : plan.N;
  call.args.runs = by_runs ? plan.runs : 1;
  call.args.groups = by_runs ? plan.groups : 1;
  call.args.sum_columns = plan.sum_columns;
  call.args.row_dims = plan.row_dims;
  for (int i = 0; i < plan.row_dims; ++i) call.args.row_sizes[i] = plan.row_sizes[i];
  call.kernel = function;
  call.args.panel_rows = panel_rows(plan, one, operands);
  call.scratch_bytes = scratch_bytes(plan, one, call.args.panel_rows);

  if (one.sums.empty()) {
    run_rows(call, plan, one.pointwise);
  } else {
    int64_t sums = static_cast<int64_t>(one.sums.size()), rows = chunk_rows(plan);
    // In up to all the groups of a sample a run has one addend: the sums of larger chunks have the same bits.
    if (by_runs && rows < call.args.panel_rows) rows = std::min<int64_t>(call.args.panel_rows, plan.groups);
    int64_t chunks = ceil_div(plan.M, rows);
    int64_t size = chunks * sums * plan.sum_columns, stride = 1;
    OwnedTensor partials = OwnedTensor::empty(1, &size, &stride, plan.compute, false, 0);
    call.args.partials = partials.data();
    run_sums(call, plan, one.pointwise, chunks, rows);
    for (int64_t k = 0; k < sums && !call.out_of_memory; ++k) {
      const Operand &operand = plan.operands[one.sums[k]];
      if (!operand.present) continue;
      AvoOperand out{};
      fill_operand(plan, operand, data_of(one.sums[k]), out);
      run_finish(call, plan, kernel->finish, chunks, sums, k, out);
    }
  }
  if (call.out_of_memory) fail(op.name, ": out of memory for the buffers of the CPU kernel");
  return true;
}

} // namespace avo

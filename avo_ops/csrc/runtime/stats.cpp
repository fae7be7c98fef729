// Walks all counters of the operator table.
#include "stats.h"

#include <map>

#include "list_table.h"
#include "message.h"
#include "registry.h"

namespace avo {
namespace {

template <class F> void for_each_counter(const Op &op, F f) {
  for (const auto &one : op.cases) {
    if (const CpuKernel *kernel = one->cpu.kernel.load()) f(kernel->path, one->cpu.calls);
    for (const Alternative &alternative : one->cuda)
      for (const Step &step : alternative.steps)
        for (const auto &row : step.uses)
          for (const auto &uses : row)
            for (const auto &use : uses) {
              f("cuda/" + use->variant->symbol, use->calls);
              if (const StridedUse *strided = use->strided.load())
                f("cuda/" + strided->variant.symbol, strided->use.calls);
              for (const ExactUse *exact = use->exact.load(); exact; exact = exact->next)
                f("cuda/" + exact->variant.symbol, exact->use.calls);
            }
  }
  f("definition", op.definitions);
  f("empty", op.empties);
  f("copy", op.copies);
  f("cast", op.casts);
}

template <class F> void for_each_counter(const ListOp &op, F f) {
  if (const CpuKernel *kernel = op.elements.kernel.load()) f(kernel->path, op.elements.calls);
  for (const auto &[unit, kernel] : op.kernels) f("cuda/" + unit, kernel->calls);
  f("definition", op.definitions);
  f("empty", op.empties);
  f("copy", op.copies);
}

template <class AnyOp> void add_text(const AnyOp &op, std::string &text) {
  std::map<std::string, uint64_t> counts; // several cases may share a kernel
  for_each_counter(op, [&](const std::string &path, std::atomic<uint64_t> &counter) { counts[path] += counter; });
  for (const auto &[path, count] : counts)
    if (count) text += join(op.qualified, "\t", path, "\t", count, "\n");
}

template <class AnyOp> void reset(const AnyOp &op) {
  for_each_counter(op, [](const std::string &, std::atomic<uint64_t> &counter) { counter = 0; });
}

} // namespace

std::string stats_text() {
  std::string text;
  for_each_op([&](const Op &op) { add_text(op, text); });
  for_each_list([&](const ListOp &op) { add_text(op, text); });
  return text;
}

void reset_stats() {
  for_each_op([](const Op &op) { reset(op); });
  for_each_list([](const ListOp &op) { reset(op); });
}

} // namespace avo

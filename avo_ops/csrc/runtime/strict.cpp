// One flag for all threads: a backward runs on threads of its own.
#include "strict.h"

#include <atomic>

#include "message.h"

namespace avo {
namespace {

std::atomic<Strict> mode{Strict::Off};

Strict current() { return mode.load(std::memory_order_relaxed); }

} // namespace

void set_strict(Strict wanted) { mode.store(wanted, std::memory_order_relaxed); }

void check_copies(const Plan &plan) {
  if (current() != Strict::Copies || (plan.outcome != Outcome::Cpu && plan.outcome != Outcome::Cuda)) return;
  const Op &op = *plan.op;
  for (int k = 0; k < op.operand_count(); ++k) {
    const Operand &operand = plan.operands[k];
    if (!plan.exists(k) || !(operand.copy || operand.cast)) continue;
    const std::string &name = op.operand_name(k);
    if (operand.cast)
      fail(op.name, ": strict mode: ", name, " would be cast from ", short_name(operand.declared), " to ",
           short_name(operand.dtype));
    fail(op.name, ": strict mode: ", name, " would be copied: its kernel does not take these strides");
  }
}

void check_definition(const Plan &plan) {
  check_definition(plan.op->name, plan.outcome == Outcome::Definition ? plan.reason : kNoKernel);
}

void check_copy(const std::string &op, const std::string &operand) {
  if (current() == Strict::Copies)
    fail(op, ": strict mode: ", operand, " would be copied: its kernel does not take these strides");
}

void check_definition(const std::string &op, const char *reason) {
  if (current() != Strict::Off) fail(op, ": strict mode: the definition would run, not a kernel: ", reason);
}

} // namespace avo

// Checks of single arguments that need nothing but their own value.
#include "arguments.h"

#include <string_view>

#include "message.h"

namespace avo {

int64_t *Arguments::take(const Op &op, const ArgSpec &arg, int64_t count) {
  check_list_length(op, arg, count);
  if (pool_used + count > 4 * kMaxDims) fail(op.subject, ": the int lists of this call are too long");
  int64_t *room = pool + pool_used;
  pool_used += static_cast<int>(count);
  return room;
}

int64_t choice_of(const Op &op, const ArgSpec &arg, const char *value, size_t length) {
  std::string_view text(value, length);
  for (size_t i = 0; i < arg.choices.size(); ++i)
    if (text == arg.choices[i]) return static_cast<int64_t>(i);
  std::string allowed;
  for (size_t i = 0; i < arg.choices.size(); ++i)
    allowed += (i == 0 ? "'" : i + 1 == arg.choices.size() ? " or '" : ", '") + arg.choices[i] + "'";
  fail(op.subject, ": ", arg.name, " must be ", allowed, ", but is '", text, "'");
}

void check_mask_length(const Op &op, const ArgSpec &arg, int64_t length) {
  if (length != arg.length) fail(op.subject, ": ", arg.name, " must have ", arg.length, " entries, but has ", length);
}

void check_list_length(const Op &op, const ArgSpec &arg, int64_t length) {
  if (length > kMaxDims)
    fail(op.subject, ": ", arg.name, " must have at most ", kMaxDims, " entries, but has ", length);
}

void check_arguments(const Op &op, Arguments &args) {
  for (size_t i = 0; i < op.args.size(); ++i) {
    const ArgSpec &spec = op.args[i];
    Argument &arg = args.of[i];
    if (spec.kind == ArgKind::Str) arg.integer = choice_of(op, spec, arg.text, static_cast<size_t>(arg.length));
    else if (spec.kind == ArgKind::Mask) check_mask_length(op, spec, arg.length);
    else if (spec.kind == ArgKind::Ints) check_list_length(op, spec, arg.length);
  }
}

} // namespace avo

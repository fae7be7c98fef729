// Strict mode of a process: a call that would take a slower way than a kernel raises instead.
#pragma once

#include "plan.h"

namespace avo {

enum class Strict : int { Off, Definitions, Copies };

void set_strict(Strict mode);

// Raises in strict mode where the plan makes copies or casts and these are forbidden.
void check_copies(const Plan &plan);

// Raises in strict mode, for a call whose definition is about to run.
void check_definition(const Plan &plan);

// The same for an operand, and for a call, of an op of this name.
void check_copy(const std::string &op, const std::string &operand);
void check_definition(const std::string &op, const char *reason);

inline constexpr const char *kNoKernel = "its kernel is not there or could not be loaded";

} // namespace avo

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

} // namespace avo

// Counters of the paths that calls took.
#pragma once

#include <string>

namespace avo {

// Lines "operator<tab>path<tab>count", of counters that are not zero. Paths: "cpu/<isa>/<kernel>",
// "cuda/<symbol>", "definition", "empty", and operands through a temporary: "copy", "cast".
std::string stats_text();
void reset_stats();

} // namespace avo

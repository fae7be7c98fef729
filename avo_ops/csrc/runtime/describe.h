// What would be done for a call that is only imagined: text in, text out.
#pragma once

#include <string>

namespace avo {

// `call` says the operator, the target and the arguments (the grammar is in describe.cpp). Throws what the
// call would.
std::string describe_plan(const char *call);

} // namespace avo

// The operators that are registered with torch.
#pragma once

#include <functional>
#include <string>

#include "table.h"

namespace avo {

// Parses an operator table and, if `kernels`, registers its operators for CPU and CUDA, whose schemas must then be
// defined already; else somebody else does. Throws; then none of the table's operators is known here.
void register_tables(const char *text, bool kernels);

// The operator "namespace::name", or null.
const Op *find_op(const std::string &qualified);

// In the order of registration.
void for_each_op(const std::function<void(const Op &)> &f);

} // namespace avo

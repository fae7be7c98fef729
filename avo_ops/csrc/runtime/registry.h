// The operators that are registered with torch.
#pragma once

#include <functional>
#include <string>

#include "table.h"

namespace avo {

// Parses an operator table and registers its operators for CPU and CUDA. The schemas must be defined already.
// Throws; then none of the table's operators is known here.
void register_tables(const char *text);

// The operator "namespace::name", or null.
const Op *find_op(const std::string &qualified);

// In the order of registration.
void for_each_op(const std::function<void(const Op &)> &f);

} // namespace avo

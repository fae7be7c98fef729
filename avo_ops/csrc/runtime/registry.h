// The operators that are registered with torch.
#pragma once

#include <functional>
#include <string>

#include "table.h"

namespace avo {

// Parses an operator table and registers its operators for CPU and CUDA, whose schemas must be defined already.
// Throws; then none of the table's operators is known here.
void register_tables(const char *text);

// Parses the table of operators whose kernels are registered already, by declare_op or by somebody else. Nothing
// happens if they are known: several threads may make the first call of an operator.
void add_tables(const char *text);

// Registers the operator "namespace::name" for CPU and CUDA; its table is asked for when it is first called.
void declare_op(const std::string &qualified);

// Who is asked for a table, which it gives to add_tables or not. No lock is held meanwhile.
using TableSource = void (*)(const char *qualified);
void set_table_source(TableSource source);

// The operator "namespace::name", or null: neither here nor had from the source.
const Op *find_op(const std::string &qualified);

// The same, but throws for an operator without a table.
const Op &called_op(const std::string &qualified);

// In the order of registration.
void for_each_op(const std::function<void(const Op &)> &f);

} // namespace avo

// Planning, the part common to all devices: check the arguments, bring the call to (M,N) form, describe
// results.
#include "plan.h"

#include <algorithm>

#include "message.h"

namespace avo {
namespace {

constexpr int64_t kMostWholeNumbers = int64_t{1} << 24; // that float32 holds one by one

std::string shape(const TensorView &tensor) { return list_text(tensor.sizes, tensor.ndim); }

std::string device_name(const TensorView &tensor) {
  return tensor.cuda ? "cuda:" + std::to_string(tensor.device) : "cpu";
}

// The case key, in the mixed radix of table_parse.cpp.
uint64_t key_of(const Op &op, const Arguments &args) {
  uint64_t key = 0, scale = 1;
  for (size_t i = 0; i < op.args.size(); ++i) {
    const ArgSpec &spec = op.args[i];
    if (spec.kind == ArgKind::Tensor && spec.optional) {
      key += args.of[i].present ? scale : 0;
      scale *= 2;
    } else if (!spec.narrow.empty()) {
      auto found = std::find(spec.narrow.begin(), spec.narrow.end(), args.of[i].tensor.dtype);
      key += scale * static_cast<uint64_t>(found - spec.narrow.begin());
      scale *= spec.narrow.size();
    } else if (spec.kind == ArgKind::Str) {
      key += scale * static_cast<uint64_t>(args.of[i].integer);
      scale *= spec.choices.size();
    } else if (spec.kind == ArgKind::Mask) {
      key += scale * args.of[i].bits;
      scale <<= spec.length;
    }
  }
  return key;
}

const Case *find_case(const Op &op, uint64_t key) {
  auto found = std::lower_bound(op.cases.begin(), op.cases.end(), key,
                                [](const std::unique_ptr<Case> &one, uint64_t key) { return one->key < key; });
  return found != op.cases.end() && (*found)->key == key ? found->get() : nullptr;
}

void check_tensor(const Op &op, const ArgSpec &spec, const TensorView &tensor, const TensorView &primary) {
  if (spec.integer && !is_integer(tensor.dtype))
    fail(op.subject, ": ", spec.name, " must be a tensor of whole numbers (int64 or int32), but is ",
         torch_dtype_name(tensor.torch_dtype));
  if (!spec.narrow.empty()) {
    if (std::find(spec.narrow.begin(), spec.narrow.end(), tensor.dtype) == spec.narrow.end()) {
      std::string allowed;
      for (Dtype dtype : spec.narrow)
        allowed += (allowed.empty() ? "" : " or ") + torch_dtype_name(dtype_to_torch(dtype));
      fail(op.subject, ": ", spec.name, " must be ", allowed, ", but is ", torch_dtype_name(tensor.torch_dtype));
    }
  } else if (!spec.integer && (tensor.dtype == Dtype::None || index_of(tensor.dtype) >= kDtypes))
    fail(op.subject, ": ", spec.name,
         " must be a floating-point tensor (float32, float16, bfloat16 or float64), but is ",
         torch_dtype_name(tensor.torch_dtype));
  if (tensor.cuda != primary.cuda || (tensor.cuda && tensor.device != primary.device))
    fail(op.subject, ": ", spec.name, " must be on ", device_name(primary), " like ", op.args[op.primary].name,
         ", but is on ", device_name(tensor));
  if (tensor.ndim > kMaxDims)
    fail(op.subject, ": ", spec.name, " must have at most ", kMaxDims, " dimensions, but has ", tensor.ndim);
}

bool same_shape(const TensorView &tensor, const Plan &plan) { // never one that the plan splits
  return tensor.ndim == plan.ndim && std::equal(tensor.sizes, tensor.sizes + tensor.ndim, plan.sizes);
}

// Broadcasts the shape of the plan with that of one more operand.
void broadcast(const Op &op, const ArgSpec &spec, const TensorView &tensor, Plan &plan) {
  int64_t sizes[kMaxDims];
  int ndim = std::max(plan.ndim, tensor.ndim), shift = ndim - plan.ndim, other_shift = ndim - tensor.ndim;
  for (int i = 0; i < ndim; ++i) {
    int64_t a = i < shift ? 1 : plan.sizes[i - shift], b = i < other_shift ? 1 : tensor.sizes[i - other_shift];
    if (a != b && a != 1 && b != 1)
      fail(op.subject, ": ", spec.name, " must have shape ", list_text(plan.sizes, plan.ndim), " (that of ",
           op.args[op.primary].name, ") or broadcast to it, but has shape ", shape(tensor));
    sizes[i] = a == 1 ? b : a;
  }
  std::copy(sizes, sizes + ndim, plan.common);
  plan.sizes = plan.common;
  plan.ndim = ndim;
}

// The one column dim of the rules last and dim; -1: there is none.
int column_dim(const Op &op, const Arguments &args, int ndim) {
  const std::string &name = op.args[op.primary].name;
  if (ndim == 0 && (op.rule == Rule::Last || !op.parts.empty()))
    fail(op.subject, ": ", name, " must have at least 1 dimension, but has shape []");
  if (op.rule != Rule::Dim) return ndim - 1;
  int64_t given = args.of[op.rule_arg].integer, range = std::max(ndim, 1);
  if (given < -range || given >= range)
    fail(op.subject, ": ", op.args[op.rule_arg].name, " must be in [", -range, ", ", range - 1, "] (", name, " has ",
         ndim, ndim == 1 ? " dimension" : " dimensions", "), but is ", given);
  return ndim == 0 ? -1 : static_cast<int>(given < 0 ? given + range : given);
}

// The shape of a call whose primary is packed: that of a part.
void take_apart(const Op &op, const Arguments &args, const TensorView &primary, Plan &plan) {
  const std::string &name = op.args[op.primary].name;
  int dim = column_dim(op, args, primary.ndim);
  if (primary.sizes[dim] % op.packing)
    fail(op.subject, ": ", name, " must have a multiple of ", op.packing, " as size of dimension ", dim,
         ", but has shape ", shape(primary));
  std::copy(primary.sizes, primary.sizes + primary.ndim, plan.common);
  plan.common[dim] /= op.packing;
  plan.sizes = plan.common;
}

// The shape of the call: that of the primary, unless it and the other MN arguments broadcast to a larger one.
void find_shape(const Op &op, const Arguments &args, Plan &plan) {
  const TensorView &primary = args.of[op.primary].tensor;
  check_tensor(op, op.args[op.primary], primary, primary);
  plan.sizes = primary.sizes;
  plan.ndim = primary.ndim;
  if (op.args[op.primary].parts) take_apart(op, args, primary, plan);
  for (size_t i = 0; i < op.args.size(); ++i) {
    const ArgSpec &spec = op.args[i];
    if (spec.kind != ArgKind::Tensor || !args.of[i].present) continue;
    const TensorView &tensor = args.of[i].tensor;
    check_tensor(op, spec, tensor, primary);
    if (spec.span == Span::MN && !spec.parts && !same_shape(tensor, plan)) broadcast(op, spec, tensor, plan);
  }
}

// Strides of a tensor in the dims of the plan: dim 1, the channels, becomes groups and the channels of a group.
void split_strides(const int64_t *strides, const Plan &plan, int64_t *split) {
  split[0] = strides[0];
  split[1] = strides[1] * plan.runs;
  split[2] = strides[1];
  std::copy(strides + 2, strides + plan.whole_ndim, split + 3);
}

// Groups of channels become a dim of the plan.
void split_channels(const Op &op, const Arguments &args, Plan &plan) {
  const std::string &name = op.args[op.primary].name;
  int64_t groups = args.of[op.rule_arg].integer;
  if (plan.ndim < 2 || plan.ndim >= kMaxDims)
    fail(op.subject, ": ", name, " must have 2 to ", kMaxDims - 1,
         " dimensions (samples, channels, ...), but has shape ", list_text(plan.sizes, plan.ndim));
  if (groups < 1 || plan.sizes[1] % groups)
    fail(op.subject, ": ", op.args[op.rule_arg].name, " must divide the number of channels, ", plan.sizes[1],
         " (dimension 1 of ", name, "), but is ", groups);
  plan.whole_ndim = plan.ndim;
  plan.whole_sizes = plan.sizes;
  plan.channels = plan.sizes[1];
  plan.groups = groups;
  plan.runs = plan.channels / groups;
  plan.run = product(plan.sizes + 2, plan.ndim - 2);
  plan.split_sizes[0] = plan.sizes[0];
  plan.split_sizes[1] = groups;
  plan.split_sizes[2] = plan.runs;
  std::copy(plan.sizes + 2, plan.sizes + plan.ndim, plan.split_sizes + 3);
  plan.sizes = plan.split_sizes;
  ++plan.ndim;
}

// Which dims are columns: fills order, column_begin and column_sizes.
void find_columns(const Op &op, const Arguments &args, Plan &plan) {
  const std::string &name = op.args[op.primary].name;
  if (op.rule == Rule::Groups) split_channels(op, args, plan);
  int ndim = plan.ndim;
  plan.column_ndim = op.rule == Rule::Groups ? ndim - 2 : 0;
  int dim = -1;
  if (op.rule == Rule::Last || op.rule == Rule::Dim) {
    dim = column_dim(op, args, ndim);
    plan.column_ndim = dim >= 0;
  } else if (op.rule == Rule::Trailing) {
    const Argument &list = args.of[op.rule_arg];
    plan.column_ndim = list.length;
    if (list.length == 0) fail(op.subject, ": ", op.args[op.rule_arg].name, " must have at least 1 entry, but is []");
    if (list.length > ndim || !std::equal(list.list, list.list + list.length, plan.sizes + ndim - list.length))
      fail(op.subject, ": ", op.args[op.rule_arg].name, " must be the last dimensions of ", name, ", whose shape is ",
           list_text(plan.sizes, ndim), ", but is ", list_text(list.list, list.length));
  }
  plan.column_begin = ndim - plan.column_ndim;
  plan.column_sizes = plan.sizes + plan.column_begin;
  if (dim >= 0) {
    for (int i = 0, at = 0; i < ndim; ++i)
      if (i != dim) plan.order[at++] = i;
    plan.order[ndim - 1] = dim;
    plan.column_size = plan.sizes[dim];
    plan.column_sizes = &plan.column_size;
  } else {
    for (int i = 0; i < ndim; ++i) plan.order[i] = i;
  }
}

// Strides of `tensor` expanded to the shape of the call.
const int64_t *expand(const TensorView &tensor, Plan &plan) {
  if (same_shape(tensor, plan)) return tensor.strides;
  bool splits = plan.op->rule == Rule::Groups;
  const int64_t *sizes = splits ? plan.whole_sizes : plan.sizes;
  int ndim = splits ? plan.whole_ndim : plan.ndim, shift = ndim - tensor.ndim;
  int64_t *strides = plan.expanded[plan.expanded_count++];
  int64_t whole[kMaxDims], *expanded = splits ? whole : strides;
  for (int i = 0; i < ndim; ++i)
    expanded[i] = i < shift || tensor.sizes[i - shift] != sizes[i] ? 0 : tensor.strides[i - shift];
  if (splits) split_strides(whole, plan, strides);
  return strides;
}

void check_channels(const Op &op, const ArgSpec &spec, const TensorView &tensor, const Plan &plan) {
  if (tensor.ndim == 1 && tensor.sizes[0] == plan.channels) return;
  fail(op.subject, ": ", spec.name, " must have shape ", list_text(&plan.channels, 1), " (dimension 1 of ",
       op.args[op.primary].name, "), but has shape ", shape(tensor));
}

void check_columns(const Op &op, const ArgSpec &spec, const TensorView &tensor, const Plan &plan) {
  if (op.rule == Rule::Groups) return check_channels(op, spec, tensor, plan);
  if (tensor.ndim == plan.column_ndim && std::equal(tensor.sizes, tensor.sizes + tensor.ndim, plan.column_sizes))
    return;
  const std::string &primary = op.args[op.primary].name;
  std::string what = op.rule == Rule::Trailing ? op.args[op.rule_arg].name
                     : op.rule == Rule::Dim
                         ? join("dimension ", plan.ndim ? plan.order[plan.ndim - 1] : 0, " of ", primary)
                         : "the last dimension of " + primary;
  fail(op.subject, ": ", spec.name, " must have shape ", list_text(plan.column_sizes, plan.column_ndim), " (", what,
       "), but has shape ", shape(tensor));
}

void check_rows(const Op &op, const ArgSpec &spec, const TensorView &tensor, const Plan &plan) {
  if (tensor.ndim == plan.m_ndim && std::equal(tensor.sizes, tensor.sizes + tensor.ndim, plan.m_sizes)) return;
  fail(op.subject, ": ", spec.name, " must have shape ", list_text(plan.m_sizes, plan.m_ndim),
       " (one value for each row of ", op.args[op.primary].name, "), but has shape ", shape(tensor));
}

void check_number(const Op &op, const ArgSpec &spec, const TensorView &tensor) {
  if (tensor.ndim == 0 || (tensor.ndim == 1 && tensor.sizes[0] == 1)) return;
  fail(op.subject, ": ", spec.name, " must have shape [] or [1] (one number), but has shape ", shape(tensor));
}

// Sizes of packed tensors.
void find_packed_sizes(const Op &op, Plan &plan) {
  plan.packed_dim = plan.order[plan.ndim - 1];
  std::copy(plan.sizes, plan.sizes + plan.ndim, plan.packed_sizes);
  plan.packed_sizes[plan.packed_dim] *= op.packing;
  plan.packed_columns = plan.packed_sizes[plan.packed_dim];
  contiguous_strides(plan.packed_sizes, plan.ndim, plan.packed_strides);
}

void check_packed(const Op &op, const ArgSpec &spec, const TensorView &tensor, const Plan &plan) {
  const int64_t *expected = spec.span == Span::MN ? plan.packed_sizes : &plan.packed_columns;
  int ndim = spec.span == Span::MN ? plan.ndim : 1;
  if (tensor.ndim == ndim && std::equal(expected, expected + ndim, tensor.sizes)) return;
  fail(op.subject, ": ", spec.name, " must have shape ", list_text(expected, ndim), " (", op.packing,
       " values for each column of ", op.args[op.primary].name, "), but has shape ", shape(tensor));
}

// The parts of operand `whole`, whose elements lie in these strides.
void plan_parts(const Op &op, int whole, const int64_t *strides, Plan &plan) {
  const Operand &packed = plan.operands[whole];
  for (size_t i = 0; i < op.parts.size(); ++i) {
    if (op.parts[i].whole != whole) continue;
    Operand &part = plan.operands[op.first_part() + static_cast<int>(i)];
    part = packed;
    part.packed = false;
    if (!packed.present) continue;
    bool rows = packed.span == Span::MN;
    int dim = rows ? plan.packed_dim : 0, index = op.parts[i].index;
    part.ndim = rows ? plan.ndim : 1;
    part.sizes = rows ? plan.sizes : plan.column_sizes;
    part.strides = strides;
    part.offset = strides[dim] * index * (op.interleaved ? 1 : plan.column_sizes[0]);
    part.data = static_cast<const char *>(packed.data) + part.offset * size_of(packed.declared);
    if (!op.interleaved) continue;
    int64_t *own = plan.expanded[plan.expanded_count++];
    std::copy(strides, strides + part.ndim, own);
    own[dim] *= op.packing;
    part.strides = own;
  }
}

void plan_arguments(const Op &op, const Arguments &args, Plan &plan) {
  plan.compute = Dtype::F32;
  for (size_t i = 0; i < op.args.size(); ++i) {
    const ArgSpec &spec = op.args[i];
    Operand &operand = plan.operands[i];
    operand.present = spec.kind == ArgKind::Tensor && args.of[i].present;
    operand.packed = spec.parts > 0;
    if (!operand.present) {
      if (operand.packed) plan_parts(op, static_cast<int>(i), nullptr, plan);
      continue;
    }
    const TensorView &tensor = args.of[i].tensor;
    operand.repeated = operand.copy = operand.cast = false;
    operand.span = spec.span;
    operand.declared = operand.dtype = tensor.dtype;
    operand.data = tensor.data;
    operand.offset = 0;
    operand.ndim = plan.ndim;
    operand.sizes = plan.sizes;
    operand.temp_strides = nullptr;
    if (operand.packed) {
      check_packed(op, spec, tensor, plan);
      operand.strides = tensor.strides;
      plan_parts(op, static_cast<int>(i), tensor.strides, plan);
    } else if (spec.span == Span::MN) {
      operand.strides = expand(tensor, plan);
    } else {
      operand.strides = tensor.strides;
      operand.sizes = tensor.sizes;
      operand.ndim = tensor.ndim;
      if (spec.span == Span::N) check_columns(op, spec, tensor, plan);
      else if (spec.span == Span::M) check_rows(op, spec, tensor, plan);
      else check_number(op, spec, tensor);
    }
    if (tensor.dtype == Dtype::F64) plan.compute = Dtype::F64;
  }
}

Dtype return_dtype(const ReturnSpec &spec, const Arguments &args, const Plan &plan) {
  if (!spec.dtypes.empty()) return spec.dtypes[spec.chosen_by < 0 ? 0 : args.of[spec.chosen_by].integer];
  Dtype dtype = Dtype::None;
  for (int arg : spec.dtype_of) {
    if (!plan.operands[arg].present) return plan.compute;
    dtype = promote(dtype, plan.operands[arg].declared);
  }
  return dtype == Dtype::None ? plan.compute : dtype;
}

// The strides of a result of the given memory order: torch's channels_last, or contiguous.
void strides_of_whole(const TensorView &primary, Plan &plan) {
  int order[kMaxDims], ndim = plan.whole_ndim, at = 0;
  bool last = is_channels_last(primary.sizes, primary.strides, primary.ndim);
  order[at++] = 0;
  if (!last) order[at++] = 1;
  for (int i = 2; i < ndim; ++i) order[at++] = i;
  if (last) order[at++] = 1;
  ordered_strides(plan.whole_sizes, ndim, order, plan.whole_strides);
  split_strides(plan.whole_strides, plan, plan.split_strides);
}

// Layouts of the results. A pointwise operator keeps the strides of a dense primary, as torch.empty_like
// does.
void plan_returns(const Op &op, const Arguments &args, Plan &plan, bool keep_strides) {
  const int64_t *kept = op.rule == Rule::Groups ? plan.split_strides : plan.operands[op.primary].strides;
  for (size_t i = 0; i < op.returns.size(); ++i) {
    const ReturnSpec &spec = op.returns[i];
    Operand &operand = plan.operands[op.operand_of_return(static_cast<int>(i))];
    operand.present = plan.chosen->returns >> i & 1;
    operand.packed = spec.parts > 0;
    operand.repeated = operand.copy = operand.cast = false;
    operand.span = spec.span;
    operand.declared = operand.dtype = return_dtype(spec, args, plan);
    operand.data = nullptr;
    operand.offset = 0;
    operand.ndim = plan.ndim;
    operand.temp_strides = nullptr;
    if (operand.packed) {
      bool rows = spec.span == Span::MN;
      if (!rows) operand.ndim = 1;
      operand.sizes = rows ? plan.packed_sizes : &plan.packed_columns;
      operand.strides = rows ? plan.packed_strides : plan.n_strides;
      plan_parts(op, op.operand_of_return(static_cast<int>(i)), operand.strides, plan);
    } else if (spec.span == Span::MN) {
      operand.sizes = plan.sizes;
      operand.strides = keep_strides ? kept : plan.contiguous;
    } else if (spec.span == Span::M) {
      operand.ndim = plan.m_ndim;
      operand.sizes = plan.m_sizes;
      operand.strides = plan.m_strides;
    } else {
      operand.ndim = op.rule == Rule::Groups ? 1 : plan.column_ndim;
      operand.sizes = op.rule == Rule::Groups ? &plan.channels : plan.column_sizes;
      operand.strides = plan.n_strides;
    }
  }
}

// With nothing to compute, the results are empty or are sums over no rows. A row result over no columns (a
// mean of nothing, say) is whatever torch makes of it: the definition's matter.
void plan_empty(const Op &op, Plan &plan) {
  plan.outcome = Outcome::Empty;
  for (size_t i = 0; i < op.returns.size(); ++i)
    if (op.returns[i].span == Span::M && plan.exists(op.operand_of_return(static_cast<int>(i))) && plan.M > 0) {
      plan.outcome = Outcome::Definition;
      plan.reason = "row results over zero columns";
    }
}

} // namespace

double scalar_value(const Plan &plan, const Arguments &args, int arg) {
  const ArgSpec &spec = plan.op->args[arg];
  if (spec.kind == ArgKind::Int) return static_cast<double>(args.of[arg].integer);
  return args.of[arg].present ? args.of[arg].number : spec.none[plan.compute == Dtype::F64];
}

void plan_call(const Op &op, const Arguments &args, const Target &target, Plan &plan) {
  plan.op = &op;
  plan.target = target;
  plan.reason = nullptr;
  plan.chosen = nullptr;
  plan.alternative = nullptr;
  plan.strided = false;
  plan.operands[kAbsent].present = plan.operands[kAbsent].packed = false;
  plan.expanded_count = plan.step_count = plan.workspace_count = 0;

  find_shape(op, args, plan);
  find_columns(op, args, plan);
  int ndim = plan.ndim;
  for (int i = 0; i < ndim; ++i) plan.m_sizes[plan.order[i]] = i < plan.column_begin ? plan.sizes[plan.order[i]] : 1;
  plan.m_ndim = op.rule == Rule::Groups ? plan.whole_ndim : ndim; // (samples, groups, 1, ...)
  if (!op.parts.empty()) find_packed_sizes(op, plan);
  plan_arguments(op, args, plan);

  if (op.mask >= 0 && args.of[op.mask].bits == 0) {
    plan.outcome = Outcome::Nothing;
    return;
  }
  plan.chosen = find_case(op, key_of(op, args));
  if (!plan.chosen) {
    plan.outcome = Outcome::Definition;
    plan.reason = "no kernel for this combination of arguments";
    return;
  }
  if (!plan.chosen->returns) {
    plan.outcome = Outcome::Nothing;
    return;
  }

  plan.numel = product(plan.sizes, ndim);
  bool keep_strides = false;
  if (op.rule == Rule::Flat) {
    const int64_t *strides = plan.operands[op.primary].strides;
    order_by_strides(plan.sizes, ndim, strides, plan.order);
    keep_strides = plan.numel == 0 || is_dense(plan.sizes, ndim, strides, plan.order);
    if (!keep_strides) // the results are contiguous: so is the order of the iteration
      for (int i = 0; i < ndim; ++i) plan.order[i] = i;
  }
  contiguous_strides(plan.sizes, ndim, plan.contiguous);
  ordered_strides(plan.sizes, ndim, plan.order, plan.normal);
  contiguous_strides(plan.m_sizes, ndim, plan.m_strides);
  contiguous_strides(plan.column_sizes, plan.column_ndim, plan.n_strides);
  plan.M = product(plan.m_sizes, ndim);
  plan.N = plan.sum_columns = product(plan.column_sizes, plan.column_ndim);
  if (op.rule == Rule::Groups) {
    plan.sum_columns = plan.channels;
    plan.n_strides[0] = 1; // of an N operand, which has one dim
    strides_of_whole(args.of[op.primary].tensor, plan);
    keep_strides = true;
  }
  plan_returns(op, args, plan, keep_strides);

  if (plan.numel == 0) plan_empty(op, plan);
  else if (op.integers && plan.compute == Dtype::F32 && plan.N > kMostWholeNumbers) {
    plan.outcome = Outcome::Definition;
    plan.reason = "float32 does not hold the numbers of so many columns";
  } else if (target.cuda) plan_cuda(plan);
  else plan_cpu(plan);
}

} // namespace avo

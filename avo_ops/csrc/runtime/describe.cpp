// A call in text, written by registry/native.py:
//
//   op NAMESPACE::NAME
//   target cpu | target cuda DEVICE ARCH SMS         DEVICE: index; ARCH: 90 for compute capability 9.0
//   then one line an argument, in order:
//   tensor DTYPE ADDRESS NDIM SIZE... STRIDE...      f32 | f16 | bf16 | f64 | i64 | i32 | f8 | i8; of ADDRESS only mod
//   16 matters none | ints VALUE... | int VALUE | float VALUE | str VALUE | mask 0|1...
//
// The answer is a line for each fact, "word value...":
//
//   path cpu/v3/NAME | cuda | definition | empty | nothing
//   reason TEXT                                      of a definition
//   space M N [rows SIZE...]                         on the CPU with the row dims
//   dtypes X W COMPUTE
//   skipped INDEX TEXT                               an alternative before the chosen one: why it did not serve
//   alternative INDEX flat|rows
//   step FAMILY SYMBOL grid X Y Z block B cluster C shared BYTES aligned 0|1
//   variant VEC N|chunks|odd|any [unaligned]         of the last step: vector width, the width that it is for, whether
//                                                    a variant exists that needs aligned operands
//   params VALUE...                                  of the last step: ptr:x stride:x=768 eps=1e-05; of several strides
//                                                    stride:x=2304,64
//   unaligned NAME address|stride|N                  what forbids 16-byte accesses
//   workspace GROUPS SUMS N
//   uses NAME...                                     operands that the CPU kernel reads or writes
//   operand NAME SPAN DTYPE [col STRIDE rows STRIDE...] [copy] [cast FROM]     as the kernel sees it
//   result NAME DTYPE [SIZES] [STRIDES]
#include "describe.h"

#include "cpu_kernels.h"
#include "plan.h"
#include "registry.h"
#include "text.h"

namespace avo {
namespace {

const char *const kSpans[] = {"MN", "N", "M", "1"};

const char *operand_name(const Op &op, int k) { return k == kAbsent ? "null" : op.operand_name(k).c_str(); }

// ---- reading ----

Target read_target(LineReader &in) {
  Target target;
  if (!in.next() || in.word("keyword") != "target") in.error("expected a target");
  const std::string &kind = in.word("device");
  if (kind == "cuda") {
    target.cuda = true;
    target.device = static_cast<int>(in.integer("device index"));
    target.arch = static_cast<int>(in.integer("arch"));
    target.sms = static_cast<int>(in.integer("SM count"));
  } else if (kind != "cpu") {
    in.error("the target must be cpu or cuda, but is '", kind, "'");
  }
  in.done();
  return target;
}

struct ImaginedTensor {
  int64_t sizes[kMaxDims + 1], strides[kMaxDims + 1];
};

void read_tensor(LineReader &in, const Target &target, ImaginedTensor &room, TensorView &view) {
  const std::string &dtype = in.word("dtype");
  view.dtype = dtype_of_short_name(dtype);
  if (view.dtype == Dtype::None) in.error("unknown dtype '", dtype, "'");
  view.torch_dtype = dtype_to_torch(view.dtype);
  view.data = reinterpret_cast<const void *>(static_cast<uintptr_t>(in.integer("address")));
  int64_t ndim = in.integer("number of dimensions");
  if (ndim < 0 || ndim > kMaxDims) in.error("a tensor has 0 to ", kMaxDims, " dimensions");
  view.ndim = static_cast<int32_t>(ndim);
  for (int i = 0; i < ndim; ++i) room.sizes[i] = in.integer("size");
  for (int i = 0; i < ndim; ++i) room.strides[i] = in.integer("stride");
  view.sizes = room.sizes;
  view.strides = room.strides;
  view.cuda = target.cuda;
  view.device = target.device;
}

void read_argument(LineReader &in, const Op &op, const ArgSpec &spec, const Target &target, ImaginedTensor &room,
                   Arguments &args, Argument &arg) {
  if (!in.next()) fail(op.name, ": no value for ", spec.name);
  const std::string kind = in.word("kind");
  arg.present = kind != "none";
  static const char *const kinds[] = {"tensor", "ints", "int", "float", "str", "mask"};
  if (arg.present ? kind != kinds[static_cast<int>(spec.kind)] : !spec.optional)
    in.error(op.name, ": ", spec.name, " cannot be '", kind, "'");
  if (!arg.present) return;
  if (spec.kind == ArgKind::Tensor) read_tensor(in, target, room, arg.tensor);
  if (spec.kind == ArgKind::Int) arg.integer = in.integer("int");
  if (spec.kind == ArgKind::Float) arg.number = in.number("float");
  if (spec.kind == ArgKind::Str) {
    const std::string &value = in.word("str");
    arg.integer = choice_of(op, spec, value.data(), value.size());
  }
  if (spec.kind == ArgKind::Ints) {
    std::vector<int64_t> values;
    while (in.more()) values.push_back(in.integer("int"));
    int64_t *room = args.take(op, spec, static_cast<int64_t>(values.size()));
    std::copy(values.begin(), values.end(), room);
    arg.list = room;
    arg.length = static_cast<int32_t>(values.size());
  }
  if (spec.kind == ArgKind::Mask) {
    int length = 0;
    for (arg.bits = 0; in.more(); ++length) arg.bits |= uint64_t(in.integer("flag") != 0) << length;
    check_mask_length(op, spec, length);
  }
  in.done();
}

// ---- writing ----

std::string describe_path(const Plan &plan) {
  switch (plan.outcome) {
  case Outcome::Nothing: return "path nothing\n";
  case Outcome::Empty: return "path empty\n";
  case Outcome::Cuda: return "path cuda\n";
  case Outcome::Definition: return join("path definition\nreason ", plan.reason, "\n");
  case Outcome::Cpu:
    if (const CpuKernel *kernel = plan.chosen->cpu.present ? cpu_kernel(plan.chosen->cpu) : nullptr)
      return join("path ", kernel->path, "\n");
    return join("path definition\nreason no library has the CPU kernel ", plan.chosen->cpu.symbol, "\n");
  }
  return "";
}

std::string describe_operand(const Plan &plan, int k) {
  const Operand &operand = plan.operands[k];
  std::string text = join("operand ", operand_name(*plan.op, k), " ", kSpans[static_cast<int>(operand.span)], " ",
                          short_name(operand.dtype));
  int dims = plan.target.cuda ? operand.row_dims : plan.row_dims;
  if (operand.span == Span::MN || !plan.target.cuda) {
    text += join(" col ", operand.col_stride, " rows");
    for (int i = 0; i < dims; ++i) text += join(" ", operand.row_strides[i]);
  }
  if (operand.copy) text += " copy";
  if (operand.cast) text += join(" cast ", short_name(operand.declared));
  return text + "\n";
}

std::string describe_param(const Plan &plan, const StepPlan &step, const Arguments &args, const Param &param) {
  const Op &op = *plan.op;
  switch (param.kind) {
  case ParamKind::Pointer: return join("ptr:", plan.exists(param.index) ? operand_name(op, param.index) : "null");
  case ParamKind::Stride: {
    std::string text = join("stride:", operand_name(op, param.index), "=");
    if (!plan.exists(param.index)) return text + "0";
    const Operand &operand = plan.operands[param.index];
    for (int i = 0; i < operand.row_dims; ++i) text += join(i ? "," : "", operand.row_strides[i]);
    return text;
  }
  case ParamKind::Step:
    return join("step:", operand_name(op, param.index), "=", plan.operands[param.index].repeated ? 0 : 1);
  case ParamKind::M: return join("M=", rows_of(plan, step));
  case ParamKind::N: return join("N=", columns_of(plan, *step.step));
  case ParamKind::Run: return join("run=", plan.run);
  case ParamKind::Runs: return join("runs=", plan.runs);
  case ParamKind::Channels: return join("channels=", plan.channels);
  case ParamKind::Aligned: return join("aligned=", step.aligned);
  case ParamKind::Scalar: return join(op.args[param.index].name, "=", scalar_value(plan, args, param.index));
  case ParamKind::Partials: return join("partials:", step.workspace);
  case ParamKind::Groups: return join("groups=", step.groups);
  }
  return "";
}

// A variant for this N, or for rows of whole chunks, exists and was left because the call is not aligned.
bool misses_aligned(const Plan &plan, const StepPlan &step) {
  if (step.use->variant->exact != kAnyWidth) return false;
  for (const auto &use : step.step->uses[index_of(plan.x)][index_of(plan.w)]) {
    const Variant &v = *use->variant;
    if (v.exact == plan.N || (v.exact == kWholeChunks && v.holds(plan.N) && plan.N % v.vec == 0)) return true;
  }
  return false;
}

std::string describe_width(int64_t exact) {
  if (exact == kOddRows) return "odd";
  if (exact == kFewRows) return "few";
  return exact == kAnyWidth ? "any" : exact == kWholeChunks ? "chunks" : std::to_string(exact);
}

std::string describe_unaligned(const Plan &plan, int vec) {
  std::string text;
  const Op &op = *plan.op;
  if (plan.N % vec) text += join("unaligned ", op.args[op.primary].name, " N\n");
  for (int k = 0; k < op.operand_count(); ++k) {
    const Operand &operand = plan.operands[k];
    if (!plan.exists(k)) continue;
    bool temporary = operand.copy || operand.cast;
    if (!temporary && reinterpret_cast<uintptr_t>(operand.data) % 16)
      text += join("unaligned ", operand_name(op, k), " address\n");
    bool odd = false;
    for (int i = 0; operand.span == Span::MN && i < operand.row_dims; ++i) odd = odd || operand.row_strides[i] % vec;
    if (odd && plan.N % vec == 0) text += join("unaligned ", operand_name(op, k), " stride\n");
  }
  return text;
}

std::string describe_cuda(const Plan &plan, const Arguments &args) {
  std::string text = join("dtypes ", short_name(plan.x), " ", short_name(plan.w), " ", short_name(plan.compute), "\n");
  for (int i = 0; i < plan.alternative_index; ++i)
    if (const char *why = refusal(plan, plan.chosen->cuda[i])) text += join("skipped ", i, " ", why, "\n");
  text += join("alternative ", plan.alternative_index, plan.alternative->flat ? " flat\n" : " rows\n");
  std::string unaligned;
  for (int s = 0; s < plan.step_count; ++s) {
    const StepPlan &step = plan.steps[s];
    const Variant &v = *step.use->variant;
    text += join("step ", step.step->family->name, " ", v.symbol, " grid ", step.grid[0], " ", step.grid[1], " ",
                 step.grid[2], " block ", v.block, " cluster ", v.cluster, " shared ", v.smem, " aligned ",
                 step.aligned, "\nvariant ", v.vec, " ", describe_width(v.exact),
                 misses_aligned(plan, step) ? " unaligned" : "", "\nparams");
    for (const Param &param : step.step->params) text += " " + describe_param(plan, step, args, param);
    text += "\n";
    if (!step.aligned && unaligned.empty())
      unaligned = describe_unaligned(plan, v.exact == kOddRows ? chunk_of(plan) : v.vec);
  }
  text += unaligned;
  for (int i = 0; i < plan.workspace_count; ++i)
    text += join("workspace ", plan.workspaces[i].groups, " ", plan.workspaces[i].sums, " ", plan.sum_columns, "\n");
  return text;
}

std::string describe_uses(const Plan &plan) {
  std::string text = "uses";
  for (const auto *list : {&plan.chosen->cpu.operands, &plan.chosen->cpu.sums})
    for (int k : *list)
      if (plan.exists(k)) text += join(" ", operand_name(*plan.op, k));
  return text + "\n";
}

std::string describe(const Plan &plan, const Arguments &args) {
  const Op &op = *plan.op;
  std::string text = describe_path(plan);
  bool runs = plan.outcome == Outcome::Cpu || plan.outcome == Outcome::Cuda;
  if (runs) {
    text += join("space ", plan.M, " ", plan.N);
    if (!plan.target.cuda) {
      text += " rows";
      for (int i = 0; i < plan.row_dims; ++i) text += join(" ", plan.row_sizes[i]);
    }
    text += "\n";
    text += plan.target.cuda ? describe_cuda(plan, args) : describe_uses(plan);
    for (int k = 0; k < op.operand_count(); ++k)
      if (plan.exists(k)) text += describe_operand(plan, k);
  }
  if (!runs && plan.outcome != Outcome::Empty) return text;
  for (size_t i = 0; i < op.returns.size(); ++i) {
    const Operand &operand = plan.operands[op.operand_of_return(static_cast<int>(i))];
    if (!operand.present) continue;
    // A result of groups is as the call has it, not as the kernels see it.
    bool whole = plan.splits(operand);
    int ndim = whole ? plan.whole_ndim : operand.ndim;
    text += join("result ", op.returns[i].name, " ", short_name(operand.declared), " ",
                 list_text(whole ? plan.whole_sizes : operand.sizes, ndim), " ",
                 list_text(whole ? plan.whole_strides : operand.strides, ndim), "\n");
  }
  return text;
}

} // namespace

std::string describe_plan(const char *call) {
  LineReader in(call);
  if (!in.next() || in.word("keyword") != "op") in.error("expected an op");
  const std::string name = in.word("operator");
  const Op *op = find_op(name);
  if (!op) fail("there is no operator ", name);
  in.done();
  Target target = read_target(in);
  auto args = std::make_unique<Arguments>();
  std::vector<ImaginedTensor> rooms(op->args.size());
  for (size_t i = 0; i < op->args.size(); ++i)
    read_argument(in, *op, op->args[i], target, rooms[i], *args, args->of[i]);
  if (in.next()) in.error("more arguments than the operator has");
  auto plan = std::make_unique<Plan>();
  plan_call(*op, *args, target, *plan);
  return describe(*plan, *args);
}

} // namespace avo

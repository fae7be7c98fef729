// The text form of the operator table. Written by registry/native.py, which documents nothing of it again:
//
//   avo 1                                              version of this text
//   namespace NS
//   family NAME flat|row|loop|column|runs|finish SUMS
//   unit NAME                                          the cubin of the variants that follow, up to the next unit
//   variant X W|- SYMBOL MIN_N MAX_N N|chunks|odd|any BLOCK ROWS VEC COLS PERSIST CLUSTER SMEM     of the last family
//   op NAME RULE RULE_ARG|-1 PRIMARY                   RULE: flat | last | trailing | dim | groups
//   arg NAME tensor MN|N|M|1 OPTIONAL [integer | narrow DTYPE...]     OPTIONAL: 0 | 1; narrow: that kernels keep
//   arg NAME ints | int | mask LENGTH | str CHOICE... | float [NONE_F32 NONE_F64]
//   return NAME MN|N|M OPTIONAL ARG...                 ARG: indices of the arguments to whose dtypes it promotes
//   return NAME MN|N|M OPTIONAL is DTYPE | by ARG DTYPE...     its dtype; or one for each choice of a str
//   parts halves|pairs NAME...                         of the last arg or return: the operands that it consists of
//   case KEY...                                        one integer for each key entry
//   returns EXISTS...                                  0 | 1 for each return
//   cpu SYMBOL row|pointwise BUFFERS
//   operands NAME... / scalars NAME... / sums NAME...  of the cpu line
//   alt flat|rows MIN_ARCH [LIMIT_F32 LIMIT_F16 LIMIT_BF16 LIMIT_F64]
//   step FAMILY
//   param ptr NAME | stride NAME | M | N | aligned | scalar NAME | partials | groups | run | runs | channels
//
// An operand may be one that only another op of the table has (a row statistic that this op does not return):
// the kernel gets null for it. Every line belongs to the last line above it that can own it; an op ends at
// the next op or at the end.
#include "table.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "text.h"

namespace avo {
namespace {

class Parser {
public:
  explicit Parser(const char *text) : in_(text) {}

  Tables parse() {
    if (!in_.next() || in_.word("version line") != "avo" || in_.integer("version") != 1)
      fail("the operator table must begin with 'avo 1'");
    while (in_.next()) {
      line(in_.word("keyword"));
      in_.done();
    }
    finish_op();
    for (const auto &[op, name] : absent_)
      if (!names_.count(name)) fail("op ", op, ": no argument or return of any op is named '", name, "'");
    return std::move(tables_);
  }

private:
  void line(const std::string &keyword) {
    if (keyword == "namespace") space_ = in_.word("namespace");
    else if (keyword == "family") family();
    else if (keyword == "unit") unit_ = in_.word("unit");
    else if (keyword == "variant") variant();
    else if (keyword == "op") op();
    else if (keyword == "arg") arg();
    else if (keyword == "return") result();
    else if (keyword == "parts") parts();
    else if (keyword == "case") new_case();
    else if (keyword == "returns") returns();
    else if (keyword == "cpu") cpu();
    else if (keyword == "operands") cpu_case().operands = names(&Parser::operand);
    else if (keyword == "scalars") cpu_case().scalars = names(&Parser::scalar);
    else if (keyword == "sums") cpu_case().sums = names(&Parser::sum);
    else if (keyword == "alt") alternative();
    else if (keyword == "step") step();
    else if (keyword == "param") param();
    else in_.error("unknown keyword '", keyword, "'");
  }

  template <class T> T &owner(T *pointer, const char *what) {
    if (!pointer) in_.error("no ", what, " to add this line to");
    return *pointer;
  }
  Op &current_op() { return owner(op_, "op"); }
  Case &current_case() { return owner(case_, "case"); }
  CpuCase &cpu_case() {
    if (!current_case().cpu.present) in_.error("no cpu line to add this line to");
    return case_->cpu;
  }

  template <class T> T choose(const char *what, std::initializer_list<std::pair<const char *, T>> choices) {
    const std::string &word = in_.word(what);
    for (const auto &choice : choices)
      if (word == choice.first) return choice.second;
    in_.error("unknown ", what, " '", word, "'");
  }
  Span span() { return choose<Span>("span", {{"MN", Span::MN}, {"N", Span::N}, {"M", Span::M}, {"1", Span::One}}); }
  Dtype dtype(const char *what) {
    const std::string &word = in_.word(what);
    Dtype found = dtype_of_short_name(word);
    if (index_of(found) >= kDtypes || found == Dtype::None) in_.error("unknown ", what, " '", word, "'");
    return found;
  }
  Dtype any_dtype() {
    const std::string &word = in_.word("dtype");
    Dtype found = dtype_of_short_name(word);
    if (found == Dtype::None) in_.error("unknown dtype '", word, "'");
    return found;
  }
  int bounded(const char *what, int64_t low, int64_t high) {
    int64_t value = in_.integer(what);
    if (value < low || value > high) in_.error(what, " must be in [", low, ", ", high, "], but is ", value);
    return static_cast<int>(value);
  }

  // ---- families ----

  void family() {
    auto family = std::make_unique<Family>();
    family->name = in_.word("family");
    family->kind = choose<FamilyClass>("class", {{"flat", FamilyClass::Flat},
                                                 {"row", FamilyClass::Row},
                                                 {"loop", FamilyClass::Loop},
                                                 {"column", FamilyClass::Column},
                                                 {"runs", FamilyClass::Runs},
                                                 {"finish", FamilyClass::Finish}});
    family->sums = bounded("sums", 0, 1 << 16);
    if (!families_.emplace(family->name, family.get()).second) in_.error("family ", family->name, " twice");
    family_ = family.get();
    unit_ = family->name;
    tables_.families.push_back(std::move(family));
  }

  void variant() {
    Family &family = owner(family_, "family");
    auto variant = std::make_unique<Variant>();
    int x = index_of(dtype("dtype of MN operands"));
    const std::string &second = in_.word("dtype of N operands");
    int w = second == "-" ? kDtypes : index_of(dtype_of_short_name(second));
    if (w < 0 || w > kDtypes) in_.error("unknown dtype of N operands '", second, "'");
    variant->symbol = in_.word("symbol");
    variant->unit = unit_;
    variant->min_n = in_.integer("min_n");
    variant->max_n = in_.integer("max_n");
    variant->exact = width();
    variant->block = bounded("block", 1, 1024);
    variant->rows = bounded("rows", 0, 1 << 20);
    variant->vec = bounded("vec", 1, 1024);
    variant->cols = in_.integer("cols");
    variant->persist = in_.number("persist");
    variant->cluster = bounded("cluster", 1, 16);
    variant->smem = bounded("smem", 0, 1 << 24);
    if (variant->vec & (variant->vec - 1)) in_.error("vec must be a power of two, but is ", variant->vec);
    if (variant->cols < 0 || variant->persist < 0) in_.error("cols and persist must not be negative");
    bool by_rows = family.kind != FamilyClass::Flat && family.kind != FamilyClass::Finish;
    if (by_rows && variant->rows == 0) in_.error("a variant of this class needs rows");
    if (family.kind == FamilyClass::Column && variant->cols == 0) in_.error("a column variant needs cols");
    family.variants[x][w].push_back(std::move(variant));
  }

  // ---- signatures ----

  void op() {
    finish_op();
    auto op = std::make_unique<Op>();
    op->space = space_;
    if (space_.empty()) in_.error("no namespace line before the first op");
    op->name = in_.word("op");
    op->qualified = space_ + "::" + op->name;
    op->subject = op->name.ends_with("_forward") ? op->name.substr(0, op->name.size() - 8) : op->name;
    op->rule = choose<Rule>("rule", {{"flat", Rule::Flat},
                                     {"last", Rule::Last},
                                     {"trailing", Rule::Trailing},
                                     {"dim", Rule::Dim},
                                     {"groups", Rule::Groups}});
    op->rule_arg = bounded("rule argument", -1, kMaxOperands);
    op->primary = bounded("primary", 0, kMaxOperands);
    op_ = op.get();
    tables_.ops.push_back(std::move(op));
  }

  void arg() {
    ArgSpec arg;
    arg.name = in_.word("argument");
    arg.kind = choose<ArgKind>("kind", {{"tensor", ArgKind::Tensor},
                                        {"ints", ArgKind::Ints},
                                        {"int", ArgKind::Int},
                                        {"float", ArgKind::Float},
                                        {"str", ArgKind::Str},
                                        {"mask", ArgKind::Mask}});
    if (arg.kind == ArgKind::Tensor) {
      arg.span = span();
      arg.optional = bounded("optional", 0, 1);
      if (in_.more()) {
        const std::string &numbers = in_.word("numbers");
        if (numbers == "narrow") {
          while (in_.more()) arg.narrow.push_back(any_dtype());
          bool fits = arg.span == Span::MN && !arg.optional && !arg.narrow.empty();
          if (!fits || !std::all_of(arg.narrow.begin(), arg.narrow.end(), is_stored))
            in_.error("a tensor of a dtype of its own must have the span MN and such dtypes, and not be optional");
        } else {
          if (numbers != "integer") in_.error("a tensor is of real numbers, or says 'integer' or 'narrow'");
          if (arg.span != Span::M) in_.error("a tensor of whole numbers must have the span M");
          arg.integer = current_op().integers = true;
        }
      }
    } else if (arg.kind == ArgKind::Mask) {
      arg.length = bounded("length of the mask", 1, 32);
      current_op().mask = static_cast<int>(current_op().args.size());
    } else if (arg.kind == ArgKind::Str) {
      while (in_.more()) arg.choices.push_back(in_.word("choice"));
      if (arg.choices.empty()) in_.error("a str needs choices");
    } else if (arg.kind == ArgKind::Float && in_.more()) {
      arg.optional = true;
      arg.none[0] = in_.number("value of None");
      arg.none[1] = in_.number("value of None");
    }
    if (!current_op().returns.empty() || case_) in_.error("arguments come before returns and cases");
    names_.insert(arg.name);
    current_op().args.push_back(std::move(arg));
    check_counts();
  }

  void result() {
    ReturnSpec result;
    result.name = in_.word("return");
    result.span = span();
    result.optional = bounded("optional", 0, 1);
    std::string how = in_.more() ? in_.peek() : "";
    if (how == "is" || how == "by") {
      in_.word("how");
      size_t choices = 1;
      if (how == "by") {
        result.chosen_by = bounded("argument of the dtype", 0, static_cast<int>(current_op().args.size()) - 1);
        choices = op_->args[result.chosen_by].choices.size();
      }
      while (in_.more()) result.dtypes.push_back(any_dtype());
      if (result.dtypes.size() != choices || !choices)
        in_.error("return ", result.name, " needs one dtype, or one for each choice of a str");
    }
    while (in_.more()) {
      int arg = bounded("argument of the dtype", 0, static_cast<int>(current_op().args.size()) - 1);
      if (op_->args[arg].kind != ArgKind::Tensor)
        in_.error("return ", result.name, " has the dtype of an argument that is no tensor");
      result.dtype_of.push_back(arg);
    }
    if (case_) in_.error("returns come before cases");
    names_.insert(result.name);
    current_op().returns.push_back(std::move(result));
    check_counts();
  }

  // The width that a variant is for: "any", "chunks", "odd", "few" or a number.
  int64_t width() {
    const std::string &word = in_.word("exact");
    if (word == "any") return kAnyWidth;
    if (word == "chunks") return kWholeChunks;
    if (word == "odd") return kOddRows;
    if (word == "few") return kFewRows;
    int64_t n = 0;
    if (!to_integer(word, n) || n <= 0)
      in_.error("exact must be any, chunks, odd, few or a width, but is '", word, "'");
    return n;
  }

  void parts() {
    Op &op = current_op();
    if (op.args.empty() || case_) in_.error("parts belong to the argument or return before them");
    bool of_return = !op.returns.empty();
    bool interleaved = choose<bool>("packing", {{"halves", false}, {"pairs", true}});
    int count = 0;
    for (; in_.more(); ++count) {
      PartSpec part;
      part.name = in_.word("part");
      part.whole = of_return ? op.operand_of_return(static_cast<int>(op.returns.size()) - 1)
                             : static_cast<int>(op.args.size()) - 1;
      part.index = count;
      names_.insert(part.name);
      op.parts.push_back(std::move(part));
    }
    Span span = of_return ? op.returns.back().span : op.args.back().span;
    if (count < 2 || span == Span::M || (!of_return && op.args.back().kind != ArgKind::Tensor))
      in_.error("a packed tensor has columns, and two parts or more");
    if (op.packing > 1 && (op.packing != count || op.interleaved != interleaved))
      in_.error("the packed tensors of op ", op.name, " differ in their packing");
    op.packing = count;
    op.interleaved = interleaved;
    (of_return ? op.returns.back().parts : op.args.back().parts) = count;
    check_counts();
  }

  void check_counts() {
    if (op_->operand_count() > kMaxOperands || op_->returns.size() > kMaxReturns)
      in_.error("op ", op_->name, " has too many arguments or returns (at most ", kMaxOperands, " together, ",
                kMaxReturns, " returns)");
  }

  // ---- cases ----

  void new_case() {
    Op &op = current_op();
    auto made = std::make_unique<Case>();
    uint64_t scale = 1;
    for (const ArgSpec &arg : op.args) {
      int entries = arg.kind == ArgKind::Mask ? arg.length
                    : arg.kind == ArgKind::Str || !arg.narrow.empty() || (arg.kind == ArgKind::Tensor && arg.optional)
                        ? 1
                        : 0;
      uint64_t radix = arg.kind == ArgKind::Str ? arg.choices.size() : !arg.narrow.empty() ? arg.narrow.size() : 2;
      for (int i = 0; i < entries; ++i) {
        if (scale > (uint64_t{1} << 56)) in_.error("op ", op.name, " has too many selecting arguments");
        made->key += scale * bounded("key entry", 0, static_cast<int64_t>(radix) - 1);
        scale *= radix;
      }
    }
    case_ = made.get();
    alt_ = nullptr;
    step_ = nullptr;
    op.cases.push_back(std::move(made));
  }

  void returns() {
    Case &current = current_case();
    for (size_t i = 0; i < op_->returns.size(); ++i) current.returns |= uint64_t(bounded("return flag", 0, 1)) << i;
  }

  void cpu() {
    CpuCase &cpu = current_case().cpu;
    cpu.present = true;
    cpu.symbol = in_.word("symbol");
    cpu.pointwise = choose<bool>("class", {{"row", false}, {"pointwise", true}});
    cpu.buffers = bounded("buffers", 0, 1024);
  }

  // An argument wins over a return of the same name; -1 if there is neither.
  int find(const std::string &name) {
    Op &op = current_op();
    for (size_t i = 0; i < op.args.size(); ++i)
      if (op.args[i].name == name) return static_cast<int>(i);
    for (size_t i = 0; i < op.returns.size(); ++i)
      if (op.returns[i].name == name) return op.operand_of_return(static_cast<int>(i));
    for (size_t i = 0; i < op.parts.size(); ++i)
      if (op.parts[i].name == name) return op.first_part() + static_cast<int>(i);
    return -1;
  }
  int parts_of(int operand) {
    if (operand >= op_->first_part()) return 0;
    size_t i = static_cast<size_t>(operand), arguments = op_->args.size();
    return i < arguments ? op_->args[i].parts : op_->returns[i - arguments].parts;
  }
  int operand(const std::string &name) {
    int found = find(name);
    if (found < 0) {
      absent_.emplace_back(op_->name, name);
      return kAbsent;
    }
    int whole = op_->whole_of(found);
    if (!op_->is_return(found) && op_->args[whole].kind != ArgKind::Tensor) in_.error("'", name, "' is no tensor");
    if (parts_of(found)) in_.error("'", name, "' is packed: kernels see its parts");
    return found;
  }
  int scalar(const std::string &name) {
    int found = find(name);
    if (found < 0 || found >= static_cast<int>(op_->args.size()) ||
        (op_->args[found].kind != ArgKind::Float && op_->args[found].kind != ArgKind::Int))
      in_.error("'", name, "' is no float or int argument");
    return found;
  }
  int sum(const std::string &name) {
    int found = find(name);
    if (found < 0 || !op_->is_return(found) || op_->returns[op_->whole_of(found) - op_->args.size()].span != Span::N)
      in_.error("'", name, "' is no return of span N");
    return found;
  }
  std::vector<int> names(int (Parser::*resolve)(const std::string &)) {
    std::vector<int> found;
    while (in_.more()) found.push_back((this->*resolve)(in_.word("name")));
    if (found.size() > kMaxOperands) in_.error("more than ", kMaxOperands, " names");
    return found;
  }

  void alternative() {
    Alternative alt;
    alt.when = choose<When>("when", {{"flat", When::Flat}, {"rows", When::Rows}, {"chunks", When::Chunks}});
    alt.flat = alt.when == When::Flat;
    alt.min_arch = bounded("min_arch", 0, 10000);
    alt.limited = in_.more();
    for (int i = 0; alt.limited && i < kDtypes; ++i) alt.limit[i] = in_.integer("limit");
    current_case().cuda.push_back(std::move(alt));
    alt_ = &case_->cuda.back();
    step_ = nullptr;
  }

  void step() {
    Alternative &alt = owner(alt_, "alt");
    const std::string &name = in_.word("family");
    auto found = families_.find(name);
    if (found == families_.end()) in_.error("unknown family '", name, "'");
    if (alt.steps.size() == kMaxSteps) in_.error("more than ", kMaxSteps, " steps");
    alt.steps.emplace_back();
    step_ = &alt.steps.back();
    step_->family = found->second;
  }

  void param() {
    Step &step = owner(step_, "step");
    Param param;
    param.kind = choose<ParamKind>("param", {{"ptr", ParamKind::Pointer},
                                             {"stride", ParamKind::Stride},
                                             {"step", ParamKind::Step},
                                             {"M", ParamKind::M},
                                             {"N", ParamKind::N},
                                             {"aligned", ParamKind::Aligned},
                                             {"scalar", ParamKind::Scalar},
                                             {"partials", ParamKind::Partials},
                                             {"groups", ParamKind::Groups},
                                             {"run", ParamKind::Run},
                                             {"runs", ParamKind::Runs},
                                             {"channels", ParamKind::Channels}});
    if (param.kind == ParamKind::Pointer || param.kind == ParamKind::Stride || param.kind == ParamKind::Step)
      param.index = operand(in_.word("operand"));
    if (param.kind == ParamKind::Scalar) param.index = scalar(in_.word("scalar"));
    if (step.params.size() == kMaxParams) in_.error("more than ", kMaxParams, " params");
    step.params.push_back(param);
  }

  // ---- what can be said only when an op is whole ----

  void finish_op() {
    if (!op_) return;
    Op &op = *op_;
    auto arg_is = [&](int i, ArgKind kind) {
      return i >= 0 && i < static_cast<int>(op.args.size()) && op.args[i].kind == kind;
    };
    if (!arg_is(op.primary, ArgKind::Tensor) || op.args[op.primary].optional || op.args[op.primary].span != Span::MN)
      in_.error("op ", op.name, ": the primary argument must be a tensor of span MN that is not optional");
    if (op.rule == Rule::Trailing && !arg_is(op.rule_arg, ArgKind::Ints))
      in_.error("op ", op.name, ": rule trailing needs an argument of kind ints");
    if ((op.rule == Rule::Dim || op.rule == Rule::Groups) && !arg_is(op.rule_arg, ArgKind::Int))
      in_.error("op ", op.name, ": rule ", op.rule == Rule::Dim ? "dim" : "groups", " needs an argument of kind int");
    auto has_rows = [&](Span span) { return span != Span::MN && span != Span::One && op.rule == Rule::Flat; };
    for (const ArgSpec &arg : op.args)
      if (arg.kind == ArgKind::Tensor && has_rows(arg.span))
        in_.error("op ", op.name, ": ", arg.name, " needs a span other than MN, which rule flat has not");
    for (const ReturnSpec &result : op.returns)
      if (result.span == Span::One || has_rows(result.span))
        in_.error("op ", op.name, ": ", result.name, " needs a span other than MN, which rule flat has not");
    if (!op.parts.empty() && op.rule != Rule::Last && op.rule != Rule::Dim)
      in_.error("op ", op.name, ": packed tensors need rule last or dim");
    std::sort(op.cases.begin(), op.cases.end(), [](auto &a, auto &b) { return a->key < b->key; });
    for (size_t i = 1; i < op.cases.size(); ++i)
      if (op.cases[i]->key == op.cases[i - 1]->key) in_.error("op ", op.name, " has two cases of one key");
    for (auto &one : op.cases) finish_case(*one);
    op_ = nullptr;
    case_ = nullptr;
    alt_ = nullptr;
    step_ = nullptr;
  }

  void finish_case(Case &one) {
    for (size_t i = 0; i < op_->returns.size(); ++i)
      if (!(one.returns >> i & 1) && !op_->returns[i].optional)
        in_.error("op ", op_->name, ": return ", op_->returns[i].name, " is absent in a case but not optional");
    if (one.cpu.scalars.size() > kMaxScalars) in_.error("op ", op_->name, " has more than ", kMaxScalars, " scalars");
    for (Alternative &alt : one.cuda)
      for (Step &step : alt.steps) resolve_uses(step);
  }

  // A step of a family takes the variants for (X, W); a family without N operands has them under X alone, a
  // finish (which touches N operands only) under W alone.
  void resolve_uses(Step &step) {
    for (int x = 0; x < kDtypes; ++x)
      for (int w = 0; w < kDtypes; ++w) {
        Family &family = *step.family;
        int alone = family.kind == FamilyClass::Finish ? w : x;
        auto &variants = family.variants[x][w].empty() ? family.variants[alone][kDtypes] : family.variants[x][w];
        for (auto &variant : variants) {
          step.uses[x][w].push_back(std::make_unique<Use>());
          step.uses[x][w].back()->variant = variant.get();
        }
      }
  }

  LineReader in_;
  Tables tables_;
  std::string space_, unit_;
  std::map<std::string, Family *> families_;
  std::set<std::string> names_;                             // of arguments and returns of all ops
  std::vector<std::pair<std::string, std::string>> absent_; // (op, name) that the op has not
  Family *family_ = nullptr;
  Op *op_ = nullptr;
  Case *case_ = nullptr;
  Alternative *alt_ = nullptr;
  Step *step_ = nullptr;
};

} // namespace

Use::~Use() {
  delete strided.load(std::memory_order_acquire);
  for (const ExactUse *one = exact.load(std::memory_order_acquire); one;) {
    const ExactUse *next = one->next;
    delete one;
    one = next;
  }
}

const Use *exact_use(const Use &use, int64_t n, int arch) {
  for (const ExactUse *one = use.exact.load(std::memory_order_acquire); one; one = one->next)
    if (one->variant.exact == n && one->arch == arch) return &one->use;
  return nullptr;
}

const Use &strided_use(const Use &use) {
  const StridedUse *found = use.strided.load(std::memory_order_acquire);
  if (found) return found->use;
  auto made = std::make_unique<StridedUse>();
  static_cast<VariantFacts &>(made->variant) = *use.variant;
  // As generator/build.py calls the kernel and its unit.
  made->variant.symbol = made->variant.unit = use.variant->symbol + "_strided";
  made->variant.strided = true;
  made->use.variant = &made->variant;
  const StridedUse *mine = made.get();
  if (!use.strided.compare_exchange_strong(found, mine, std::memory_order_acq_rel)) return found->use;
  return made.release()->use;
}

Tables parse_tables(const char *text) { return Parser(text).parse(); }

} // namespace avo

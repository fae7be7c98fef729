// Parsing and registration of operators over lists of tensors.
#include "list_table.h"

#include <array>
#include <pthread.h>

#include "list_call.h"
#include "tensor.h"
#include "text.h"

namespace avo {
namespace {

class Parser {
public:
  explicit Parser(const char *text) : in_(text) {}

  ListTable parse() {
    if (!in_.next() || in_.word("version line") != "lists" || in_.integer("version") != 1)
      fail("the table of operators over lists must begin with 'lists 1'");
    while (in_.next()) {
      line(in_.word("keyword"));
      in_.done();
    }
    finish();
    return std::move(table_);
  }

private:
  void line(const std::string &keyword) {
    if (keyword == "op") return op();
    if (!op_) in_.error("no op to add this line to");
    if (keyword == "arg") arg();
    else if (keyword == "overload") overload();
    else if (keyword == "numbers") op_->find.symbol = in_.word("symbol");
    else if (keyword == "reduces") op_->reduces = true;
    else if (keyword == "elements") elements();
    else if (keyword == "operands") operands();
    else if (keyword == "scalars") scalars();
    else in_.error("unknown keyword '", keyword, "'");
  }

  void op() {
    finish();
    auto made = std::make_unique<ListOp>();
    made->space = in_.word("namespace");
    made->name = in_.word("op");
    made->qualified = made->space + "::" + made->name;
    made->definition = made->space + "::" + in_.word("definition");
    made->shared = static_cast<int>(in_.integer("shared numbers"));
    if (made->shared < 0 || made->shared > kMaxScalars) in_.error("at most ", kMaxScalars, " shared numbers");
    op_ = made.get();
    table_.ops.push_back(std::move(made));
  }

  void arg() {
    static const std::pair<const char *, ListArgKind> kinds[] = {
        {"written", ListArgKind::Written}, {"tensors", ListArgKind::Tensors}, {"numbers", ListArgKind::Numbers},
        {"float", ListArgKind::Float},     {"bool", ListArgKind::Bool},       {"tensor", ListArgKind::Tensor},
        {"unless", ListArgKind::Unless}};
    ListArg made;
    made.name = in_.word("argument");
    const std::string &kind = in_.word("kind");
    bool known = false;
    for (const auto &[word, value] : kinds)
      if (kind == word) made.kind = value, known = true;
    if (!known) in_.error("unknown kind '", kind, "'");
    if (made.kind == ListArgKind::Tensor) made.absent = in_.number("absent");
    op_->args.push_back(std::move(made));
  }

  void overload() {
    auto made = std::make_unique<ListOverload>();
    made->op = op_;
    made->name = in_.word("overload");
    made->tensor.resize(op_->args.size());
    while (in_.more()) {
      int i = find(in_.word("argument"));
      if (op_->args[i].kind != ListArgKind::Float) in_.error("'", op_->args[i].name, "' is no float");
      made->tensor[i] = true;
    }
    table_.overloads.push_back(std::move(made));
  }

  void elements() {
    op_->elements.symbol = in_.word("symbol");
    op_->elements.buffers = static_cast<int>(in_.integer("buffers"));
  }

  void operands() {
    arrange();
    while (in_.more()) {
      int i = find(in_.word("argument")), place = 0;
      while (place < op_->operands && op_->lists[place] != i) ++place;
      if (place == op_->operands) in_.error("'", op_->args[i].name, "' is no list of whole tensors");
      op_->elements.operands.push_back(place);
    }
  }

  void scalars() {
    while (in_.more()) {
      int64_t i = in_.integer("shared number");
      if (i < 0 || i >= op_->shared) in_.error("there is no shared number ", i);
      op_->elements.scalars.push_back(static_cast<int>(i));
    }
  }

  int find(const std::string &name) {
    for (size_t i = 0; i < op_->args.size(); ++i)
      if (op_->args[i].name == name) return static_cast<int>(i);
    in_.error("no argument is named '", name, "'");
  }

  // The arguments in the order in which kernels have them.
  void arrange() {
    auto take = [&](std::vector<int> &to, auto wanted) {
      for (size_t i = 0; i < op_->args.size(); ++i)
        if (wanted(op_->args[i].kind)) to.push_back(static_cast<int>(i));
    };
    op_->lists.clear();
    op_->numbers.clear();
    take(op_->lists, [](ListArgKind k) { return k == ListArgKind::Written || k == ListArgKind::Tensors; });
    op_->operands = static_cast<int>(op_->lists.size());
    take(op_->lists, [](ListArgKind k) { return k == ListArgKind::Numbers; });
    take(op_->numbers, [](ListArgKind k) { return !is_list(k) && k != ListArgKind::Unless; });
    size_t given = op_->numbers.size();
    take(op_->numbers, [](ListArgKind k) { return k == ListArgKind::Unless; });
    op_->skips = op_->numbers.size() > given;
  }

  void finish() {
    if (!op_) return;
    const ListOp &op = *op_;
    size_t codes = op.numbers.size() + op.lists.size() - op.operands;
    if (op.operands == 0 || op.lists.size() > kMostLists || codes > kListCodes || op.numbers.size() > kMaxScalars)
      in_.error("op ", op.name, " has no lists of whole tensors, or too many lists or numbers");
    if (op.reduces && (op.args.size() != 1 || op.lists.size() != 1 || op.shared != 1))
      in_.error("op ", op.name, " must have one list and nothing else, since it reduces that to a number");
    if (op.elements.operands.size() > kMaxOperands || op.elements.scalars.size() > kMaxScalars)
      in_.error("op ", op.name, " has too many operands or scalars");
    op_ = nullptr;
  }

  LineReader in_;
  ListTable table_;
  ListOp *op_ = nullptr;
};

// ---- registration: as in registry.cpp, a function for each slot ----

constexpr size_t kSlots = 64;
const ListOverload *slots[kSlots];

template <size_t I> void trampoline(StableIValue *stack, uint64_t arguments, uint64_t results) {
  call_list(*slots[I], stack, arguments, results);
}

using BoxedKernel = void (*)(StableIValue *, uint64_t, uint64_t);

template <size_t... I> constexpr std::array<BoxedKernel, kSlots> make_trampolines(std::index_sequence<I...>) {
  return {&trampoline<I>...};
}
constexpr auto kTrampolines = make_trampolines(std::make_index_sequence<kSlots>());

// Tables and library handles live as long as the process.
struct Registered {
  std::vector<ListTable> tables;
  std::map<std::pair<std::string, std::string>, TorchLibraryHandle> libraries;
  size_t used = 0;
};

Registered &registered() {
  static auto *registered = new Registered;
  return *registered;
}

TorchLibraryHandle library_for(const std::string &space, const char *key) {
  TorchLibraryHandle &library = registered().libraries[{space, key}];
  if (!library)
    check_shim(aoti_torch_library_init_impl(space.c_str(), key, "avo_ops", 0, &library), "registration with torch");
  return library;
}

} // namespace

std::mutex &list_mutex() {
  static auto *mutex = [] {
    pthread_atfork([] { list_mutex().lock(); }, [] { list_mutex().unlock(); }, [] { list_mutex().unlock(); });
    return new std::mutex;
  }();
  return *mutex;
}

ListTable parse_lists(const char *text) { return Parser(text).parse(); }

void register_lists(const char *text) {
  ListTable table = parse_lists(text);
  std::lock_guard<std::mutex> lock(list_mutex());
  if (registered().used + table.overloads.size() > kSlots)
    fail("at most ", kSlots, " operators over lists can be registered in a process");
  for (const auto &overload : table.overloads) {
    size_t slot = registered().used++;
    slots[slot] = overload.get();
    std::string name = overload->op->name + (overload->name.empty() ? "" : "." + overload->name);
    for (const char *key : {"CPU", "CUDA"})
      check_shim(torch_library_impl(library_for(overload->op->space, key), name.c_str(), kTrampolines[slot],
                                    TORCH_ABI_VERSION),
                 ("registration of " + overload->op->qualified).c_str());
  }
  registered().tables.push_back(std::move(table));
}

void for_each_list(const std::function<void(const ListOp &)> &f) {
  std::lock_guard<std::mutex> lock(list_mutex());
  for (const ListTable &table : registered().tables)
    for (const auto &op : table.ops) f(*op);
}

} // namespace avo

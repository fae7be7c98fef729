// Recording of a call for backward, and its backward.
#include "autograd.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/dynamo/compiled_autograd.h>

namespace avo::accelerator {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

c10::IValue value_of(at::Tensor tensor) { return tensor.defined() ? c10::IValue(std::move(tensor)) : c10::IValue(); }

// The gradients of the tensor arguments, of which some are needed.
variable_list differentiate(const Rule &rule, variable_list gradients, Tensors saved, const Values &plain,
                            const std::vector<bool> &needed) {
  bool differentiable = c10::GradMode::is_enabled();
  // This backward will be differentiated: the statistics must depend on what they were made of.
  if (differentiable && rule.recompute) saved = rule.recompute(saved, plain);
  Values values;
  values.reserve(rule.backward->arguments());
  for (at::Tensor &gradient : gradients) values.push_back(value_of(std::move(gradient)));
  for (size_t i = 0; i < rule.kept; ++i) values.push_back(value_of(std::move(saved[i])));
  values.insert(values.end(), plain.begin(), plain.end());
  c10::List<bool> mask;
  mask.resize(rule.backward->returns, false);
  for (size_t i = 0; i < needed.size(); ++i)
    if (needed[i]) mask.set(static_cast<size_t>(rule.gradients[i]), true);
  values.emplace_back(std::move(mask));

  at::Tensor made[kMaxReturns];
  if (differentiable || definition_wanted()) call_by_dispatcher(*rule.backward, values.data(), made);
  else call_below_autograd(*rule.backward, values.data(), made);
  variable_list found(needed.size());
  for (size_t i = 0; i < needed.size(); ++i)
    if (needed[i]) found[i] = made[rule.gradients[i]]; // the engine casts it to the dtype of its tensor
  return found;
}

class Backward final : public torch::autograd::Node {
public:
  Backward(std::shared_ptr<const Rule> rule, torch::autograd::edge_list &&edges)
      : Node(std::move(edges)), rule_(std::move(rule)) {}

  // After the results have this node as their history.
  void save(const c10::IValue *values, const at::Tensor *results) {
    saved_.reserve(rule_->saved.size());
    for (const Rule::Saved &one : rule_->saved) {
      if (one.result) {
        saved_.emplace_back(results[one.index], is_output(one));
        continue;
      }
      const at::Tensor *tensor = tensor_of(values[one.index]);
      saved_.emplace_back(tensor ? *tensor : at::Tensor(), false);
    }
    for (int i : rule_->plain) plain_.push_back(values[i]);
  }

  variable_list apply(variable_list &&gradients) override {
    std::lock_guard<std::mutex> lock(mutex_);
    return differentiate(*rule_, materialized(std::move(gradients)), unpacked(), plain_, needed());
  }

  std::string name() const override { return rule_->name; }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    for (SavedVariable &one : saved_) one.reset_data();
  }

  // ---- compiled autograd: what tells this node from others, and its backward as a function of plain values ----

  void compiled_args(torch::autograd::CompiledNodeArgs &args) const override {
    args.collect(rule_->name);
    for (size_t i = 0; i < saved_.size(); ++i) args.collect(saved_[i], is_output(rule_->saved[i]));
    for (const c10::IValue &value : plain_) args.collect(value);
  }

  variable_list apply_with_saved(const variable_list &gradients, torch::autograd::SwapSavedVariables &swap) override {
    namespace dynamo = torch::dynamo::autograd;
    for (SavedVariable &one : saved_) swap.before(one);
    for (c10::IValue &value : plain_) swap.before(value);

    dynamo::PackedArgs packed;
    packed.pack(needed());
    packed.pack(unpacked());
    for (const c10::IValue &value : plain_) packed.pack(value);
    std::vector<c10::TypePtr> types;
    for (const c10::IValue &value : packed.vec())
      types.push_back(value.isTensor() ? c10::TypePtr(c10::TensorType::get()) : value.type());
    auto function = [rule = rule_](const variable_list &inputs, const Values &args) {
      dynamo::PackedArgs packed(args);
      auto needed = packed.unpack<std::vector<bool>>();
      auto saved = packed.unpack<Tensors>();
      Values plain;
      for (size_t i = 0; i < rule->plain.size(); ++i) plain.push_back(packed.unpack<c10::IValue>());
      return differentiate(*rule, inputs, std::move(saved), plain, needed);
    };
    auto metadata = dynamo::IValuePacker<std::vector<std::optional<torch::autograd::InputMetadata>>>::pack(
        dynamo::get_input_metadata(next_edges()));
    const auto &python = dynamo::getPyCompilerInterface();
    std::string bound = python->bind_function(swap.get_py_compiler(), name(), function, types, true, true);
    variable_list found = python->call_function(swap.get_py_compiler(), "apply_functional", bound,
                                                materialized(variable_list(gradients)), packed.vec(), metadata);
    for (SavedVariable &one : saved_) swap.after(one);
    for (c10::IValue &value : plain_) swap.after(value);
    return found;
  }

private:
  bool is_output(const Rule::Saved &one) const {
    return one.result && one.index < static_cast<int>(rule_->op->returns);
  }

  // A result without a gradient is None to the backward op, or zeros where that has kernels for all gradients only.
  variable_list materialized(variable_list &&gradients) const {
    if (!rule_->backward->optional[0])
      for (size_t i = 0; i < gradients.size(); ++i)
        if (!gradients[i].defined()) gradients[i] = input_metadata(i).zeros_like();
    return std::move(gradients);
  }

  Tensors unpacked() {
    Tensors saved;
    saved.reserve(saved_.size());
    for (const SavedVariable &one : saved_) saved.push_back(one.unpack(getptr()));
    return saved;
  }

  std::vector<bool> needed() const {
    std::vector<bool> needed(rule_->gradients.size());
    for (size_t i = 0; i < needed.size(); ++i) needed[i] = rule_->gradients[i] >= 0 && task_should_compute_output(i);
    return needed;
  }

  std::shared_ptr<const Rule> rule_;
  std::vector<SavedVariable> saved_;
  Values plain_;
};

// torch counts the references of a node by intrusive_ptr since 2.13, by shared_ptr before.
template <class Pointer> struct MakeNode;
template <> struct MakeNode<std::shared_ptr<torch::autograd::Node>> {
  template <class... Args> static auto make(Args &&...args) {
    return std::shared_ptr<Backward>(new Backward(std::forward<Args>(args)...), [](auto *node) { deleteNode(node); });
  }
};
template <> struct MakeNode<c10::intrusive_ptr<torch::autograd::Node>> {
  template <class... Args> static auto make(Args &&...args) {
    return c10::make_intrusive<Backward>(std::forward<Args>(args)...);
  }
};

} // namespace

bool definition_wanted() {
  auto included = c10::impl::tls_local_dispatch_key_set().included_;
  return included.has(c10::DispatchKey::FuncTorchDynamicLayerFrontMode) ||
         included.has(c10::DispatchKey::FuncTorchDynamicLayerBackMode) ||
         torch::autograd::ForwardADLevel::try_get_by_idx(0) != nullptr; // no_grad does not switch forward mode off
}

bool wants_gradient(const Rule &rule, const c10::IValue *values) {
  if (!c10::GradMode::is_enabled()) return false;
  for (int i : rule.tensors)
    if (const at::Tensor *tensor = tensor_of(values[i]); tensor && tensor->requires_grad()) return true;
  return false;
}

bool one_shape(const Rule &rule, const c10::IValue *values) {
  const at::Tensor *first = nullptr;
  for (int i : rule.elements) {
    const at::Tensor *tensor = tensor_of(values[i]);
    if (!tensor) continue;
    if (first && tensor->sym_sizes() != first->sym_sizes()) return false;
    first = tensor;
  }
  return true;
}

void record(const std::shared_ptr<const Rule> &rule, const c10::IValue *values, at::Tensor *results) {
  at::Tensor made[kMaxReturns];
  {
    c10::AutoGradMode off(false); // a definition may run
    call_below_autograd(*rule->forward, values, made);
  }
  torch::autograd::edge_list edges;
  edges.reserve(rule->tensors.size());
  for (int i : rule->tensors) {
    const at::Tensor *tensor = tensor_of(values[i]);
    edges.push_back(tensor ? torch::autograd::impl::gradient_edge(*tensor) : torch::autograd::Edge());
  }
  using Pointer = decltype(torch::autograd::Edge::function);
  auto node = MakeNode<Pointer>::make(rule, std::move(edges));
  for (size_t i = 0; i < rule->op->returns; ++i) // integers, which have no gradient, come last
    if (torch::autograd::isDifferentiableType(made[i].scalar_type())) torch::autograd::set_history(made[i], node);
  node->save(values, made);
  for (size_t i = 0; i < rule->op->returns; ++i) results[i] = std::move(made[i]);
}

void AutogradKernel::operator()(const c10::OperatorHandle &, c10::DispatchKeySet, torch::jit::Stack *stack) const {
  const Operation &op = *rule_->op;
  const c10::IValue *values = stack->data() + stack->size() - op.arguments();
  bool recorded = wants_gradient(*rule_, values);
  if (definition_wanted() || !one_shape(*rule_, values) || (recorded && !rule_->backward)) return rule_->python(*stack);
  at::Tensor results[kMaxReturns];
  if (recorded) record(rule_, values, results);
  else call_below_autograd(op, values, results);
  put_results(op, results, *stack);
}

} // namespace avo::accelerator

// The Python module: registration of the kernels, and a callable for each public op that goes from Python objects to
// the kernel without the dispatcher wherever nothing else would want to see the call.
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/pybind.h>

#include <ATen/PythonTorchFunctionTLS.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include "autograd.h"

namespace avo::accelerator {
namespace {

namespace py = pybind11;
using torch::jit::Stack;

// A Python object in a record that any thread may drop, and that may outlive the interpreter.
std::shared_ptr<PyObject> keep(const py::object &object) {
  return {py::object(object).release().ptr(), [](PyObject *kept) {
            if (!Py_IsInitialized()) return;
            py::gil_scoped_acquire gil;
            Py_DECREF(kept);
          }};
}

template <class Items> py::tuple to_tuple(const Items &items) {
  py::tuple made(items.size());
  for (size_t i = 0; i < items.size(); ++i) made[i] = torch::jit::toPyObject(c10::IValue(items[i]));
  return made;
}

// The Python kernel of an op, on a stack.
void call_python(const Operation &op, PyObject *function, Stack &stack) {
  py::gil_scoped_acquire gil;
  Values values(stack.end() - static_cast<std::ptrdiff_t>(op.arguments()), stack.end());
  py::object out = py::reinterpret_borrow<py::object>(function)(*to_tuple(values));
  torch::jit::drop(stack, op.arguments());
  const auto &returns = op.handle.schema().returns();
  for (size_t i = 0; i < returns.size(); ++i) {
    py::object one = returns.size() == 1 ? out : py::reinterpret_borrow<py::object>(py::tuple(out)[i]);
    stack.push_back(torch::jit::toIValue(one, returns[i].type()));
  }
}

Tensors call_recompute(PyObject *function, const Tensors &saved, const Values &plain) {
  py::gil_scoped_acquire gil;
  py::tuple tensors(saved.size());
  for (size_t i = 0; i < saved.size(); ++i)
    tensors[i] = saved[i].defined() ? py::cast(saved[i]) : static_cast<py::object>(py::none());
  Tensors made;
  for (py::handle one : py::reinterpret_borrow<py::object>(function)(tensors, to_tuple(plain)))
    made.push_back(one.is_none() ? at::Tensor() : one.cast<at::Tensor>());
  return made;
}

// ---- registration ----

void register_kernels(torch::Library &library, const std::shared_ptr<Operation> &op) {
  const c10::OperatorName &name = op->handle.operator_name();
  op->has_kernels = true;
  for (c10::DispatchKey key : {c10::DispatchKey::CPU, c10::DispatchKey::CUDA})
    library.impl(name.name.c_str(),
                 torch::dispatch(key, torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Kernel>(op))));
}

std::shared_ptr<Rule> make_rule(std::shared_ptr<const Operation> op, const py::object &python,
                                std::vector<int> elements) {
  auto rule = std::make_shared<Rule>();
  for (size_t i = 0; i < op->arguments(); ++i)
    (op->kinds[i] == ArgKind::Tensor ? rule->tensors : rule->plain).push_back(static_cast<int>(i));
  rule->python = [op, function = keep(python)](Stack &stack) { call_python(*op, function.get(), stack); };
  rule->elements = std::move(elements);
  rule->op = std::move(op);
  return rule;
}

void differentiate(Rule &rule, std::string name, std::shared_ptr<const Operation> forward,
                   std::shared_ptr<const Operation> backward, const std::vector<std::pair<bool, int>> &saved,
                   size_t kept, const std::vector<int> &gradients, const py::object &recompute) {
  rule.name = std::move(name);
  rule.forward = std::move(forward);
  rule.backward = std::move(backward);
  for (auto [result, index] : saved) rule.saved.push_back({result, index});
  rule.kept = kept;
  for (int i : rule.tensors) rule.gradients.push_back(gradients.at(static_cast<size_t>(i)));
  if (!recompute.is_none())
    rule.recompute = [function = keep(recompute)](const Tensors &tensors, const Values &plain) {
      return call_recompute(function.get(), tensors, plain);
    };
}

void register_autograd(torch::Library &library, const std::shared_ptr<Rule> &rule) {
  auto kernel = torch::CppFunction::makeFromBoxedFunctor(std::make_unique<AutogradKernel>(rule));
  library.impl(rule->op->handle.operator_name().name.c_str(),
               torch::dispatch(c10::DispatchKey::Autograd, std::move(kernel)));
}

// ---- calls from Python ----

struct Callable {
  std::shared_ptr<const Rule> rule;
  py::object usual; // takes every call that is not served here
  std::vector<std::optional<c10::IValue>> defaults;
};

// What the tensors of a call say of its way.
struct Seen {
  c10::DispatchKeySet keys;
  bool requires_grad = false;
};

// Only tensors of exactly torch's types: a subclass (DTensor, FakeTensor) takes the usual way.
bool look_at(const Operation &op, PyObject *const *objects, size_t count, Seen &seen) {
  for (size_t i = 0; i < count; ++i) {
    if (op.kinds[i] != ArgKind::Tensor || objects[i] == Py_None) continue;
    if (!THPVariable_CheckExact(objects[i])) return false;
    const at::Tensor &tensor = THPVariable_Unpack(objects[i]);
    seen.keys = seen.keys | tensor.key_set();
    seen.requires_grad = seen.requires_grad || tensor.requires_grad();
  }
  return true;
}

bool read_ints(PyObject *object, Argument &arg, Arguments &args) {
  if (!PyTuple_Check(object) && !PyList_CheckExact(object)) return false;
  Py_ssize_t size = PySequence_Fast_GET_SIZE(object);
  PyObject **items = PySequence_Fast_ITEMS(object);
  int64_t *values = take(args, static_cast<size_t>(size));
  if (!values) return false;
  for (Py_ssize_t k = 0; k < size; ++k) {
    int overflow = 0;
    if (!PyLong_CheckExact(items[k])) return false; // a symbolic size, say
    values[k] = PyLong_AsLongLongAndOverflow(items[k], &overflow);
    if (overflow) return false;
  }
  arg.list = values;
  arg.length = static_cast<int32_t>(size);
  return true;
}

// Only objects of exactly the expected types: what the dispatcher would convert or refuse takes the usual way.
bool read_object(const Operation &op, size_t i, PyObject *object, Arguments &args) {
  Argument &arg = args.of[i];
  arg.present = object != Py_None;
  if (!arg.present) return op.optional[i];
  switch (op.kinds[i]) {
  case ArgKind::Tensor: read_tensor(THPVariable_Unpack(object), arg); return true;
  case ArgKind::Ints: return read_ints(object, arg, args);
  case ArgKind::Int: {
    int overflow = 0;
    if (!PyLong_CheckExact(object)) return false;
    arg.integer = PyLong_AsLongLongAndOverflow(object, &overflow);
    return !overflow;
  }
  case ArgKind::Float:
    if (!PyFloat_CheckExact(object)) return false;
    arg.number = PyFloat_AS_DOUBLE(object);
    return true;
  case ArgKind::Str: {
    Py_ssize_t length = 0;
    if (!PyUnicode_CheckExact(object)) return false;
    arg.text = PyUnicode_AsUTF8AndSize(object, &length);
    arg.length = static_cast<int32_t>(length);
    if (!arg.text) PyErr_Clear();
    return arg.text;
  }
  case ArgKind::Mask: return false;
  }
  return false;
}

c10::IValue to_value(ArgKind kind, const Argument &arg) {
  if (kind == ArgKind::Tensor && arg.present) return *reinterpret_cast<const at::Tensor *>(arg.tensor.handle);
  if (kind == ArgKind::Ints) return c10::List<int64_t>(at::IntArrayRef(arg.list, static_cast<size_t>(arg.length)));
  if (kind == ArgKind::Int) return arg.integer;
  if (kind == ArgKind::Float && arg.present) return arg.number;
  if (kind == ArgKind::Str) return std::string(arg.text, static_cast<size_t>(arg.length));
  return {};
}

// Whether the call was served; the results are then there.
bool serve(const Callable &callable, PyObject *const *objects, size_t count, at::Tensor *results) {
  const Rule &rule = *callable.rule;
  const Operation &op = *rule.op;
  if (!op.has_kernels || count > op.arguments() || at::impl::torch_function_mode_enabled()) return false;
  Seen seen;
  if (!look_at(op, objects, count, seen) || !reaches_kernel(seen.keys) || definition_wanted()) return false;
  Arguments args;
  for (size_t i = 0; i < op.arguments(); ++i) {
    if (i < count) {
      if (!read_object(op, i, objects[i], args)) return false;
    } else if (!callable.defaults[i] || !read_one(op, i, *callable.defaults[i], args)) {
      return false; // a missing argument without a default
    }
  }
  Values values;
  auto make_values = [&] {
    values.reserve(op.arguments());
    for (size_t i = 0; i < op.arguments(); ++i) values.push_back(to_value(op.kinds[i], args.of[i]));
  };
  if (!seen.requires_grad || !c10::GradMode::is_enabled() || rule.tensors.empty()) {
    {
      py::gil_scoped_release no_gil;
      if (run_kernel(op, args, results)) return true;
    }
    make_values();
    call_definition(op, values.data(), results);
    return true;
  }
  make_values();
  if (!rule.backward || !one_shape(rule, values.data())) return false;
  py::gil_scoped_release no_gil;
  record(callable.rule, values.data(), results);
  return true;
}

PyObject *call(PyObject *self, PyObject *const *objects, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  const auto &callable = *static_cast<const Callable *>(PyCapsule_GetPointer(self, nullptr));
  at::Tensor results[kMaxReturns];
  if (!serve(callable, objects, static_cast<size_t>(count), results))
    return PyObject_Vectorcall(callable.usual.ptr(), objects, static_cast<size_t>(count), nullptr);
  size_t returns = callable.rule->op->returns;
  if (returns == 1) return THPVariable_Wrap(std::move(results[0]));
  py::tuple out(returns);
  for (size_t i = 0; i < returns; ++i) out[i] = py::reinterpret_steal<py::object>(THPVariable_Wrap(results[i]));
  return out.release().ptr();
  END_HANDLE_TH_ERRORS
}

py::object make_callable(std::shared_ptr<const Rule> rule, py::object usual) {
  static PyMethodDef definition = {"call", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call)),
                                   METH_FASTCALL, "Calls an operator, without torch's dispatcher where that is safe."};
  auto made = std::make_unique<Callable>();
  for (const c10::Argument &argument : rule->op->handle.schema().arguments())
    made->defaults.push_back(argument.default_value());
  made->rule = std::move(rule);
  made->usual = std::move(usual);
  // It lives as long as the process, as the operators do.
  auto self = py::reinterpret_steal<py::object>(PyCapsule_New(made.release(), nullptr, nullptr));
  return py::reinterpret_steal<py::object>(PyCFunction_New(&definition, self.ptr()));
}

} // namespace
} // namespace avo::accelerator

PYBIND11_MODULE(avo_torch, module) {
  using namespace avo::accelerator;
  py::class_<Operation, std::shared_ptr<Operation>>(module, "Operation").def(py::init<const std::string &>());
  py::class_<Rule, std::shared_ptr<Rule>>(module, "Rule")
      .def(py::init(&make_rule))
      .def("differentiate", &differentiate)
      .def("constant", [](Rule &rule) { rule.tensors.clear(); }); // no result has a gradient
  module.def("connect", [](uintptr_t called_op, uintptr_t call, uintptr_t set_allocator) {
    runtime.called_op = reinterpret_cast<avo::CalledOp>(called_op);
    runtime.call = reinterpret_cast<avo::CallOp>(call);
    reinterpret_cast<void (*)(avo::Allocate)>(set_allocator)(&allocate);
  });
  module.def("check", [](torch::Library &) {});
  module.def("register_kernels", &register_kernels);
  module.def("register_autograd", &register_autograd);
  module.def("callable", &make_callable);
}

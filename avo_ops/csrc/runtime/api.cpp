// The C interface for registry/native.py. Functions that can fail return null or an error text, which stays
// valid until the same thread calls again.
#include <cstring>
#include <exception>
#include <string>

#include "cpu_kernels.h"
#include "cuda_kernels.h"
#include "describe.h"
#include "emulation.h"
#include "hot_widths.h"
#include "list_table.h"
#include "message.h"
#include "registry.h"
#include "run.h"
#include "stats.h"
#include "strict.h"

#define AVO_API extern "C" __attribute__((visibility("default")))

namespace {

thread_local std::string text;

template <class F> const char *error_of(F f) {
  try {
    f();
    return nullptr;
  } catch (const std::exception &error) {
    text = error.what();
  } catch (...) {
    text = "unknown error";
  }
  return text.c_str();
}

} // namespace

// Registers the operators of a table (its text form is in table_parse.cpp) for CPU and CUDA.
AVO_API const char *avo_register_operator(const char *table) {
  return error_of([&] { avo::register_tables(table); });
}

// The same for operators over lists of tensors (list_table.h).
AVO_API const char *avo_register_lists(const char *table) {
  return error_of([&] { avo::register_lists(table); });
}

// For what registry.h says of the functions of these names: kernels now, the table when it is first needed.
AVO_API const char *avo_declare_op(const char *qualified) {
  return error_of([&] { avo::declare_op(qualified); });
}

AVO_API void avo_set_table_source(avo::TableSource source) { avo::set_table_source(source); }

AVO_API const char *avo_add_tables(const char *table) {
  return error_of([&] { avo::add_tables(table); });
}

// For the accelerator, as accelerator.h says; they throw.
AVO_API const avo::Op *avo_called_op(const char *qualified) { return &avo::called_op(qualified); }

AVO_API bool avo_call(const avo::Op *op, avo::Arguments &args, AtenTensorHandle *returns) {
  avo::check_arguments(*op, args);
  avo::OwnedTensor owned[avo::kMaxReturns];
  if (!avo::call_kernels(*op, args, owned)) return false;
  for (size_t i = 0; i < op->returns.size(); ++i) returns[i] = owned[i].release();
  return true;
}

AVO_API void avo_set_allocator(avo::Allocate allocate) { avo::set_allocator(allocate); }

// Adds a library of CPU kernels; may be called again for further ones.
AVO_API const char *avo_load_cpu_kernels(const char *path) {
  return error_of([&] { avo::load_cpu_kernels(path); });
}

// The instruction set of CPU kernels: "base", "v3" or "v4". Null when AVO_OPS_CPU_ISA is wrong.
AVO_API const char *avo_cpu_isa() {
  const char *isa = nullptr;
  return error_of([&] { isa = avo::cpu_isa(); }) ? nullptr : isa;
}

AVO_API void avo_set_kernel_resolver(avo::KernelResolver resolver) { avo::set_kernel_resolver(resolver); }

AVO_API void avo_set_warning_callback(avo::WarningCallback callback) { avo::set_warning_callback(callback); }

// For what hot_widths.h says of the functions of these names.
AVO_API void avo_set_hot_width_callback(avo::HotWidthCallback callback) { avo::set_hot_width_callback(callback); }

AVO_API const char *avo_add_exact(const char *general, const char *symbol, int64_t n, int arch) {
  return error_of([&] { avo::add_exact(general, symbol, n, arch); });
}

AVO_API void avo_forget_failed_kernels() { avo::forget_failed_kernels(); }

// Counters, as stats.h says.
AVO_API const char *avo_stats() {
  const char *error = error_of([&] { text = avo::stats_text(); });
  return error ? error : text.c_str();
}

AVO_API void avo_reset_stats() { avo::reset_stats(); }

// 0: off; 1: a call that would run its definition raises; 2: one that would copy or cast an operand does too.
AVO_API void avo_set_strict(int mode) { avo::set_strict(static_cast<avo::Strict>(mode)); }

// 1 and the description of an imagined call in *out, or 0 and the error that the call would raise.
AVO_API int avo_describe_plan(const char *call, const char **out) {
  const char *error = error_of([&] { text = avo::describe_plan(call); });
  *out = error ? error : text.c_str();
  return error ? 0 : 1;
}

// Sends CPU tensors through the CUDA kernels in the emulator, for a GPU of this arch; arch 0 ends that. `order`: of
// threads and blocks (0 ascending, 1 descending, 2 random by `seed`); `fill`: the byte that memory holds first.
AVO_API void avo_emulate(int arch, int sms, int order, unsigned seed, int fill) {
  avo::set_emulation({arch, sms, {static_cast<avo::emulator::Order>(order), seed, static_cast<uint8_t>(fill)}});
}

// Runs one kernel of a library for the emulator, as avo_emulate was last told. `sizes`: grid x, y, z, block x, y, z,
// blocks of a cluster, bytes of dynamic shared memory.
AVO_API const char *avo_emulator_launch(const char *path, const char *kernel, const unsigned *sizes, void **params) {
  return error_of([&] {
    const avo::emulator::Kernel *found = avo::emulator::Kernels(path).find(kernel);
    if (!found) avo::fail(path, " has no kernel ", kernel);
    avo::emulator::Launch launch{
        {sizes[0], sizes[1], sizes[2]}, {sizes[3], sizes[4], sizes[5]}, static_cast<int>(sizes[6]), sizes[7]};
    avo::emulator::launch(*found, launch, params, avo::emulator_options());
  });
}

// For a sanitizer that ends the process: writes to stderr which thread of which kernel was running.
AVO_API void avo_emulator_print_running_thread() { avo::emulator::print_running_thread(); }

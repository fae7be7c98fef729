// The C interface for registry/native.py. Functions that can fail return null or an error text, which stays
// valid until the same thread calls again.
#include <cstring>
#include <exception>
#include <string>

#include "cpu_kernels.h"
#include "cuda_kernels.h"
#include "describe.h"
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
  return error_of([&] { avo::register_tables(table, true); });
}

// The same without kernels for torch: the accelerator registers its own.
AVO_API const char *avo_add_operator(const char *table) {
  return error_of([&] { avo::register_tables(table, false); });
}

// For the accelerator, as accelerator.h says; they throw.
AVO_API const avo::Op *avo_find_op(const char *qualified) { return avo::find_op(qualified); }

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

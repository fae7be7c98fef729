// Errors of the C shims.
#include "tensor.h"

#include <dlfcn.h>

namespace avo {

void check_shim(AOTITorchError error, const char *what) {
  if (error == AOTI_TORCH_SUCCESS) return;
  // torch >= 2.13 keeps the message of the exception that a shim caught.
  using What = const char *(*)();
  static const auto last_exception =
      reinterpret_cast<What>(dlsym(RTLD_DEFAULT, "torch_exception_get_what_without_backtrace"));
  const char *message = last_exception ? last_exception() : nullptr;
  if (message && *message) fail(message);
  fail(what, " failed (torch wrote the reason to stderr)");
}

} // namespace avo

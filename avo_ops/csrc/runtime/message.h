// Text of errors and reports: join any values, print shapes, throw.
#pragma once

#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>

namespace avo {

template <class... Parts> std::string join(const Parts &...parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

// A std::runtime_error of a boxed kernel reaches Python as a RuntimeError with exactly this text.
template <class... Parts> [[noreturn]] __attribute__((noinline, cold)) void fail(const Parts &...parts) {
  throw std::runtime_error(join(parts...));
}

inline std::string list_text(const int64_t *values, int count) {
  std::string text = "[";
  for (int i = 0; i < count; ++i) text += (i ? ", " : "") + std::to_string(values[i]);
  return text + "]";
}

} // namespace avo

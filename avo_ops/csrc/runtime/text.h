// Reading the line-based texts that Python hands over: a line is words between single spaces, a word is
// percent-encoded (%20 for a space), an empty word is "%".
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include "message.h"

namespace avo {

inline bool to_integer(const std::string &text, int64_t &value) {
  char *end = nullptr;
  value = std::strtoll(text.c_str(), &end, 10);
  return !text.empty() && !*end;
}

class LineReader {
public:
  explicit LineReader(const char *text) : at_(text) {}

  // Goes to the next line that has words; false at the end.
  bool next() {
    while (*at_) {
      ++line_;
      word_ = 0;
      words_.clear();
      std::string word;
      bool any = false;
      for (; *at_ && *at_ != '\n'; ++at_) {
        if (*at_ != ' ') {
          any = true;
          word += *at_;
        } else if (any) {
          words_.push_back(decode(word));
          word.clear();
          any = false;
        }
      }
      if (any) words_.push_back(decode(word));
      if (*at_) ++at_;
      if (!words_.empty()) return true;
    }
    return false;
  }

  template <class... Parts> [[noreturn]] void error(const Parts &...parts) const {
    fail("line ", line_, ": ", parts...);
  }

  bool more() const { return word_ < words_.size(); }

  const std::string &word(const char *what) {
    if (!more()) error("missing ", what);
    return words_[word_++];
  }

  // The next word, which is still to be read; there must be one.
  const std::string &peek() const { return words_[word_]; }

  int64_t integer(const char *what) {
    const std::string &text = word(what);
    int64_t value = 0;
    if (!to_integer(text, value)) error(what, " must be an integer, but is '", text, "'");
    return value;
  }

  double number(const char *what) {
    const std::string &text = word(what);
    char *end = nullptr;
    double value = std::strtod(text.c_str(), &end);
    if (text.empty() || *end) error(what, " must be a number, but is '", text, "'");
    return value;
  }

  void done() const {
    if (more()) error("unexpected '", words_[word_], "'");
  }

private:
  static int hex(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
  }

  std::string decode(const std::string &word) const {
    if (word == "%") return "";
    std::string text;
    for (size_t i = 0; i < word.size(); ++i) {
      if (word[i] != '%') {
        text += word[i];
        continue;
      }
      int high = i + 2 < word.size() ? hex(word[i + 1]) : -1;
      int low = high >= 0 ? hex(word[i + 2]) : -1;
      if (low < 0) error("bad percent code in '", word, "'");
      text += static_cast<char>(high * 16 + low);
      i += 2;
    }
    return text;
  }

  const char *at_;
  int line_ = 0;
  size_t word_ = 0;
  std::vector<std::string> words_;
};

} // namespace avo

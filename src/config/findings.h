#pragma once
// Collects the messages of conditions that do not hold, so that all of them are reported at once.

#include <fmt/core.h>

#include <string>
#include <utility>
#include <vector>

namespace athanor::inline config {

class Findings {
 public:
  /// Adds the formatted message if `condition` is false.
  template <class... Args>
  void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
    if (!condition) lines_.push_back(fmt::vformat(format, fmt::make_format_args(args...)));
  }
  /// Returns the messages so far, and forgets them.
  std::vector<std::string> take() { return std::move(lines_); }

 private:
  std::vector<std::string> lines_;
};

}  // namespace athanor::inline config

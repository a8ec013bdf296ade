#include "config/bounded_toml.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace athanor::inline config {
namespace {

/// Reads TOML just closely enough to see how deep each value lies. Up to the first error of the text its strings,
/// comments, brackets and dots are those that the library finds; behind it nothing is made.
class DepthScan {
 public:
  explicit DepthScan(std::string_view text) : text_(text) {}

  /// Returns the offset at which the text goes deeper than `most`, or npos.
  size_t find_deeper_than(int most) {
    for (; at_ < text_.size(); ++at_) {
      switch (text_[at_]) {
        case '#': skip_to_end_of_line(); break;
        case '"':
        case '\'': skip_string(); break;
        case '.': ++dots_; break;
        case '=': of_key_ = std::exchange(dots_, 0); break;
        case ',': of_key_ = dots_ = 0; break;
        case '\n': of_key_ = dots_ = 0; break;
        case '[':
        case '{': open(); break;
        case ']':
        case '}': close(); break;
        default: break;
      }
      if (depth_ + of_key_ + dots_ > most) return at_;
    }
    return text_.npos;
  }

 private:
  void open() {
    outside_.push_back(depth_);
    depth_ += 1 + std::exchange(of_key_, 0);
    dots_ = 0;
  }
  void close() {
    if (outside_.empty()) return;
    depth_ = outside_.back();
    outside_.pop_back();
    dots_ = 0;
  }
  void skip_to_end_of_line() { at_ = std::min(text_.find('\n', at_), text_.size()) - 1; }

  // Leaves at_ at the last byte of the string.
  void skip_string() {
    const char quote = text_[at_];
    const std::string triple(3, quote);
    const bool is_long = text_.substr(at_, 3) == triple;
    for (at_ += is_long ? 3 : 1; at_ < text_.size(); ++at_) {
      if (text_[at_] == '\\' && quote == '"') {
        ++at_;
      } else if (is_long ? text_.substr(at_, 3) == triple : text_[at_] == quote || text_[at_] == '\n') {
        at_ += is_long ? 2 : 0;
        return;
      }
    }
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;              // the depth inside the brackets that are open
  int of_key_ = 0, dots_ = 0;  // the dots of the key whose value comes; those since its beginning
  std::vector<int> outside_;   // the depth outside of each open bracket
};

}  // namespace

toml::table parse_bounded_toml(std::string_view text, std::string_view source) {
  if (const size_t at = DepthScan(text).find_deeper_than(kMaxTomlDepth); at != text.npos) {
    const auto begin = text.substr(0, at).rfind('\n') + 1;  // npos + 1 is 0
    const auto line = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n') + 1;
    const toml::source_position place{static_cast<toml::source_index>(line),
                                      static_cast<toml::source_index>(at - begin + 1)};
    throw toml::parse_error(fmt::format("tables and lists lie deeper than {} levels", kMaxTomlDepth).c_str(), place,
                            source.empty() ? nullptr : std::make_shared<const std::string>(source));
  }
  return toml::parse(text, source);
}

}  // namespace athanor::inline config

#include "documents/python_json.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>

namespace athanor::inline documents {
namespace {

constexpr std::string_view kNumberBytes = "0123456789+-.eE";
constexpr size_t kEscapeBytes = 6;  // \ud83d

// Returns the value of an escape \uXXXX at the beginning of `text`; none for anything else.
std::optional<uint32_t> escaped_unit(std::string_view text) {
  if (text.size() < kEscapeBytes || !text.starts_with("\\u")) return std::nullopt;
  uint32_t unit = 0;
  for (const char c : text.substr(2, 4)) {
    const auto digit = std::string_view("0123456789abcdef").find(static_cast<char>(c >= 'A' && c <= 'F' ? c + 32 : c));
    if (digit == std::string_view::npos) return std::nullopt;
    unit = unit << 4 | static_cast<uint32_t>(digit);
  }
  return unit;
}

// JSON's grammar: -? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)?
bool is_json_number(std::string_view text) {
  const auto take = [&](std::string_view any_of) {
    const bool found = !text.empty() && any_of.find(text.front()) != std::string_view::npos;
    if (found) text.remove_prefix(1);
    return found;
  };
  const auto digits = [&] {
    const size_t before = text.size();
    while (take("0123456789")) {
    }
    return text.size() < before;
  };
  take("-");
  if (!take("0") && !digits()) return false;
  if (take(".") && !digits()) return false;
  if (take("eE")) {
    take("+-");
    if (!digits()) return false;
  }
  return text.empty();
}

bool is_beyond_double(std::string_view number) {
  return is_json_number(number) && std::isinf(std::strtod(std::string(number).c_str(), nullptr));
}

class Replacer {
 public:
  Replacer(std::string_view row, std::string_view replacement) : row_(row), replacement_(replacement) {}

  std::optional<std::string> replace() {
    while (at_ < row_.size()) {
      if (in_string_) {
        take_in_string();
      } else {
        take_outside();
      }
    }
    return any_ ? std::optional(std::move(out_)) : std::nullopt;
  }

 private:
  void copy(size_t length) {
    out_ += row_.substr(at_, length);
    at_ += length;
  }
  void put(std::string_view instead, size_t length) {
    out_ += instead;
    at_ += length;
    any_ = true;
  }

  void take_in_string() {
    const auto rest = row_.substr(at_);
    if (rest[0] == '"') in_string_ = false;
    if (rest[0] != '\\') return copy(1);
    const auto unit = escaped_unit(rest);
    const bool is_half = unit && *unit >= 0xD800 && *unit <= 0xDFFF;
    if (!is_half) return copy(2);
    const auto second = *unit < 0xDC00 ? escaped_unit(rest.substr(kEscapeBytes)) : std::nullopt;
    if (second && *second >= 0xDC00 && *second <= 0xDFFF) return copy(2 * kEscapeBytes);
    put(replacement_, kEscapeBytes);
  }

  void take_outside() {
    const auto rest = row_.substr(at_);
    for (const std::string_view word : {"NaN", "Infinity", "-Infinity"}) {
      if (rest.starts_with(word)) return put("0", word.size());
    }
    const size_t length = std::min(rest.find_first_not_of(kNumberBytes), rest.size());
    if (length > 0) return is_beyond_double(rest.substr(0, length)) ? put("0", length) : copy(length);
    in_string_ = rest[0] == '"';
    copy(1);
  }

  std::string_view row_, replacement_;
  std::string out_;
  size_t at_ = 0;
  bool in_string_ = false, any_ = false;
};

}  // namespace

std::optional<std::string> without_python_values(std::string_view row, std::string_view replacement) {
  return Replacer(row, replacement).replace();
}

}  // namespace athanor::inline documents

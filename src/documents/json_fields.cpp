#include "documents/json_fields.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "documents/json_cutter.h"

namespace athanor {
namespace {

using nlohmann::json;

class RowWalker {
 public:
  explicit RowWalker(std::string_view row) : row_(row) {}

  // Calls `use` with each member's name and value; returns false for a row that only a parser should read.
  template <class Use>
  bool walk(Use&& use) {
    if (!take('{')) return false;
    if (take('}')) return true;
    do {
      skip_blanks();
      const size_t begin = at_ + 1;
      if (!skip_string()) return false;
      const auto name = row_.substr(begin, at_ - 1 - begin);
      if (name.find('\\') != std::string_view::npos || !take(':')) return false;
      skip_blanks();
      const size_t value = at_;
      if (!skip_value()) return false;
      use(name, row_.substr(value, at_ - value));
    } while (take(','));
    return take('}');
  }

 private:
  static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
  void skip_blanks() {
    while (at_ < row_.size() && is_blank(row_[at_])) ++at_;
  }
  bool take(char c) {
    skip_blanks();
    if (at_ >= row_.size() || row_[at_] != c) return false;
    ++at_;
    return true;
  }

  // Moves from one quote past the closing one: the next quote with an even number of backslashes before it.
  bool skip_string() {
    if (at_ >= row_.size() || row_[at_] != '"') return false;
    for (size_t from = at_ + 1; from < row_.size();) {
      const auto* quote = static_cast<const char*>(std::memchr(row_.data() + from, '"', row_.size() - from));
      if (!quote) return false;
      const auto end = static_cast<size_t>(quote - row_.data());
      size_t backslashes = 0;
      while (row_[end - 1 - backslashes] == '\\') ++backslashes;
      if (backslashes % 2 == 0) {
        at_ = end + 1;
        return true;
      }
      from = end + 1;
    }
    return false;
  }

  bool skip_value() {
    if (at_ >= row_.size()) return false;
    if (row_[at_] == '"') return skip_string();
    const bool nested = row_[at_] == '{' || row_[at_] == '[';
    JsonCutter cutter;
    for (; at_ < row_.size(); ++at_) {
      const char c = row_[at_];
      if (!nested && (c == ',' || c == '}' || is_blank(c))) return true;
      cutter.feed(c);
      if (nested && cutter.balanced()) {
        ++at_;
        return true;
      }
    }
    return false;
  }

  std::string_view row_;
  size_t at_ = 0;
};

// Uses the parser alone, for unusual rows.
json parse_fields(std::string_view row, const std::vector<std::string>& names) {
  const auto wanted = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth != 1 || event != json::parse_event_t::key) return true;
    return std::binary_search(names.begin(), names.end(), parsed.get_ref<const std::string&>());
  };
  auto object = json::parse(row, wanted);
  return object.is_object() ? object : json::object();
}

}  // namespace

json read_json_fields(std::string_view row, const std::vector<std::string>& names) {
  json object = json::object();
  const bool walked = RowWalker(row).walk([&](std::string_view name, std::string_view value) {
    if (std::binary_search(names.begin(), names.end(), name)) object[std::string(name)] = json::parse(value);
  });
  return walked ? object : parse_fields(row, names);
}

}  // namespace athanor

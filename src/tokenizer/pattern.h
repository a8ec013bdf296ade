#pragma once
// The pattern that Split and Replace search for: {"String": ...} or {"Regex": ...}.

#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/json_node.h"
#include "tokenizer/regex.h"
#include "tokenizer/unicode.h"

namespace athanor::inline tokenizer {

class Pattern {
 public:
  /// @throws DataError by JSON path if the pattern is not supported.
  static Pattern parse(const JsonNode& node);

  /// Passes all matches to `take(begin, end)` in order. Empty matches count, except directly after another match.
  template <class Take>
  void for_each_match(std::string_view text, RegexScratch& scratch, Take&& take) const {
    if (!literal_.empty()) {
      for (size_t at = text.find(literal_); at != text.npos; at = text.find(literal_, at + literal_.size())) {
        take(at, at + literal_.size());
      }
      return;
    }
    size_t done = 0, from = 0;
    bool any = false;
    Regex::Match match;
    while (from <= text.size() && regex_.find(text, from, scratch, match)) {
      const bool empty = match.begin == match.end;
      if (!empty || !any || match.begin != done) {
        take(match.begin, match.end);
        done = match.end;
        any = true;
      }
      from = match.end;
      if (empty) from += from < text.size() ? decode_utf8(text.data() + from).num_bytes : 1;
    }
  }

 private:
  explicit Pattern(std::string literal, Regex regex) : literal_(std::move(literal)), regex_(std::move(regex)) {}

  std::string literal_;  // empty: regex_ is used
  Regex regex_;
};

inline Pattern Pattern::parse(const JsonNode& node) {
  const auto literal = node.find("String");
  const auto source = literal ? *literal : node.at("Regex");
  const auto& text = source.as_string();
  try {
    return Pattern(literal ? text : "", Regex(literal ? escape_regex(text) : text));
  } catch (const DataError& error) {
    source.complain("{}", error.what());
  }
}

}  // namespace athanor::inline tokenizer

#pragma once
// The scanner of expressions, used by the grammar in expression_parser.cpp.

#include <string>
#include <string_view>

#include "documents/expression.h"

namespace athanor {

inline bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80); }
inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
inline bool is_name_char(char c) { return is_name_start(c) || is_digit(c); }

/// Every error names its position.
class ExpressionScanner {
 public:
  explicit ExpressionScanner(std::string_view text) : text_(text) {}

  /// `offset` counts from 0. @throws ExpressionError.
  [[noreturn]] static void fail_at(size_t offset, const std::string& message) {
    throw ExpressionError(offset + 1, message);
  }

  size_t here() const { return at_; }
  void go_back(size_t offset) { at_ = offset; }
  /// Returns 0 at the end.
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip() { ++at_; }
  bool at_end() const { return at_ >= text_.size(); }
  bool starts_with(std::string_view sign) const { return text_.substr(at_).starts_with(sign); }
  void skip_blanks();

  /// Skips blanks, and then `sign`, an operator, if that follows. Returns true if it did.
  bool take(std::string_view sign);
  void expect(std::string_view sign);
  /// Does the same for a word, which must end there.
  bool take_word(std::string_view word);
  /// Returns empty if there is no name here.
  std::string take_name();
  /// The scanner must be at the first character of the number or the string.
  double take_number();
  std::string take_string();

  /// Returns the text at the current position, for messages.
  std::string shown() const;

 private:
  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace athanor

#pragma once
// The characters of an expression: what its grammar (expression_parser.cpp) takes them by.

#include <string>
#include <string_view>

#include "data/documents/expression.h"

namespace athanor {

inline bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80); }
inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
inline bool is_name_char(char c) { return is_name_start(c) || is_digit(c); }

/// Whatever is refused is refused with its position.
class ExpressionScanner {
 public:
  explicit ExpressionScanner(std::string_view text) : text_(text) {}

  /// `offset` counts from 0. @throws ExpressionError.
  [[noreturn]] static void fail_at(size_t offset, const std::string& message) {
    throw ExpressionError(offset + 1, message);
  }

  size_t here() const { return at_; }
  void go_back(size_t offset) { at_ = offset; }
  /// 0 at the end.
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip() { ++at_; }
  bool at_end() const { return at_ >= text_.size(); }
  bool starts_with(std::string_view sign) const { return text_.substr(at_).starts_with(sign); }
  void skip_blanks();

  /// Passes over blanks and `sign`, an operator, if that follows.
  bool take(std::string_view sign);
  void expect(std::string_view sign);
  /// The same for a word, which must end there.
  bool take_word(std::string_view word);
  /// Empty if none is here.
  std::string take_name();
  /// Both stand at its first character.
  double take_number();
  std::string take_string();

  /// What is here, for messages.
  std::string shown() const;

 private:
  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace athanor

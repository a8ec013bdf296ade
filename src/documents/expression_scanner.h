#pragma once
// The scanner of expressions, used by the grammar in expression_parser.cpp.

#include <string>
#include <string_view>

#include "documents/expression.h"

namespace athanor::inline documents {

inline bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80); }
inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
inline bool is_name_char(char c) { return is_name_start(c) || is_digit(c); }

/// Reads an expression from its beginning to its end. Every error is an ExpressionError with the position.
class ExpressionScanner {
 public:
  explicit ExpressionScanner(std::string_view text) : text_(text) {}

  /// Throws an error at `offset`, which counts bytes from 0.
  [[noreturn]] static void fail_at(size_t offset, const std::string& message) {
    throw ExpressionError(offset + 1, message);
  }

  /// Returns the offset of the next byte, from 0.
  size_t here() const { return at_; }
  void go_back(size_t offset) { at_ = offset; }
  /// Returns the next byte without taking it; 0 at the end.
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip() { ++at_; }
  bool at_end() const { return at_ >= text_.size(); }
  bool starts_with(std::string_view sign) const { return text_.substr(at_).starts_with(sign); }
  void skip_blanks();

  /// Skips blanks, and then `sign`, an operator, if that follows. Returns true if `sign` followed.
  bool take(std::string_view sign);
  /// Skips blanks and `sign`. Throws if something else follows.
  void expect(std::string_view sign);
  /// Skips blanks, and then `word` if that follows and no name continues it. Returns true if it followed.
  bool take_word(std::string_view word);
  /// Takes a name; returns "" if there is none here.
  std::string take_name();
  /// Take a number, or a string in quotes, of which the next byte must be the first. Throw if it is malformed.
  double take_number();
  std::string take_string();

  /// Returns the next name or character in quotes, or "the end", for messages.
  std::string shown() const;

 private:
  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace athanor::inline documents

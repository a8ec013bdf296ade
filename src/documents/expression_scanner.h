#pragma once
// The scanner of expressions, used by the grammar in expression_parser.cpp.

#include <string>
#include <string_view>

#include "base/scanner.h"
#include "documents/expression.h"

namespace athanor::inline documents {

/// Every error is an ExpressionError with the position.
class ExpressionScanner : public Scanner {
 public:
  explicit ExpressionScanner(std::string_view text);

  /// Throws an error at `offset`, which counts bytes from 0.
  [[noreturn]] static void fail_at(size_t offset, const std::string& message) {
    throw ExpressionError(offset + 1, message);
  }

  /// Skips blanks and `sign`. Throws if something else follows.
  void expect(std::string_view sign);
  /// Take the value of a number, or of a string in quotes, whose first byte is the next one. Throw if it is malformed.
  double take_literal_number();
  std::string take_literal_string();

  /// Returns the next name or character in quotes, or "the end", for messages.
  std::string shown() const;
};

}  // namespace athanor::inline documents

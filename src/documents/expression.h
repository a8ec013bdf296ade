#pragma once
// Conditions on documents for `--keep` and `--drop`: "max(attributes.toxicity) > 0.8 and source == 'web'".
//
// A path starts at the document's row, which has its attributes under `attributes`: `metadata.length`,
// `attributes.pii.email[0][2]`, `attributes["odd-name"]`. A value that is absent or null is missing: a comparison with
// a missing value is false, and arithmetic with it is missing. Functions over lists take lists of numbers or of Dolma's
// spans [start, end, score], of which they use the score; a single number is a list of one. docs/data.md describes the
// whole language.

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace athanor::inline documents {

/// An error in an expression, or in a value that it read, with its position in the expression (in bytes, from 1).
class ExpressionError : public DataError {
 public:
  ExpressionError(size_t position, const std::string& message)
      : DataError(fmt::format("position {}: {}", position, message)) {}
};

/// The document that an expression is evaluated on.
struct ExpressionSubject {
  const nlohmann::json& document;  ///< an object; it need not have the field with the text
  std::string_view text_field;     ///< name of the field with the text, or its path "a.b"
  std::string_view text;           ///< its value
};

struct ExpressionNode;

class Expression {
 public:
  /// @throws ExpressionError.
  static Expression parse(std::string_view text);
  Expression(Expression&&) noexcept;
  ~Expression();

  /// Returns true if the condition holds for the document; false if its value is missing.
  /// @throws ExpressionError if the document's values are of kinds that the expression cannot take.
  bool holds(const ExpressionSubject& subject) const;

  /// Returns each path that the expression reads, as the names up to its first index: {"attributes", "pii", "email"}.
  const std::vector<std::vector<std::string>>& paths() const { return paths_; }

 private:
  Expression();
  std::unique_ptr<ExpressionNode> root_;
  std::vector<std::vector<std::string>> paths_;
};

}  // namespace athanor::inline documents

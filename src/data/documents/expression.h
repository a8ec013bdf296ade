#pragma once
// Conditions on documents, as `--keep` and `--drop` take them: "max(attributes.toxicity) > 0.8 and source == 'web'".
//
// A path walks from the document's row, with its attributes under `attributes`: `metadata.length`,
// `attributes.pii.email[0][2]`, `attributes["odd-name"]`. What is not there, and null, is missing: a comparison with
// something missing is false, arithmetic with it is missing. Functions over lists take lists of numbers or of Dolma's
// spans [start, end, score], of which they use the score; a number alone is a list of one. docs/data.md has it all.

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace athanor {

/// Says what is wrong at which position (from 1) of an expression, or of what it read.
class ExpressionError : public DataError {
 public:
  ExpressionError(size_t position, const std::string& message)
      : DataError(fmt::format("position {}: {}", position, message)) {}
};

/// What an expression is asked about.
struct ExpressionSubject {
  const nlohmann::json& document;  ///< an object
  std::string_view text_field;     ///< this field of it is
  std::string_view text;           ///< here
};

struct ExpressionNode;

class Expression {
 public:
  /// @throws ExpressionError.
  static Expression parse(std::string_view text);
  Expression(Expression&&) noexcept;
  ~Expression();

  /// @throws ExpressionError if the document's values are of kinds that the expression cannot take.
  bool holds(const ExpressionSubject& subject) const;

  /// Each path it reads, by its steps; those that are indices are not in it, nor what follows them.
  const std::vector<std::vector<std::string>>& paths() const { return paths_; }

 private:
  Expression();
  std::unique_ptr<ExpressionNode> root_;
  std::vector<std::vector<std::string>> paths_;
};

}  // namespace athanor

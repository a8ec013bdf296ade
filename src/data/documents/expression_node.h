#pragma once
// The tree between the parser of expressions (expression_parser.cpp) and their evaluation (expression.cpp).

#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace athanor {

enum class ExpressionKind {
  kLiteral,
  kPath,
  kNegate,  // -a
  kAdd,     // a + b, and so on
  kSubtract,
  kMultiply,
  kDivide,
  kEqual,  // a == b, and so on
  kUnequal,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,  // a in [b, ...]
  kNot,
  kAnd,
  kOr,
  kMax,  // of lists
  kMin,
  kSum,
  kMean,
  kCount,  // count(list), or with a comparison whose left side is each element
  kAny,
  kAll,
  kLength,  // len(text or spans)
  kHas,
  kDefault,  // default(a, b)
  kMatches,  // matches(a, "pattern")
};

struct ExpressionNode {
  ExpressionKind kind = ExpressionKind::kLiteral;
  size_t position = 0;  // in the expression, from 1
  std::vector<std::unique_ptr<ExpressionNode>> children;
  std::variant<bool, double, std::string> literal;
  std::vector<std::variant<std::string, size_t>> steps;  // of a path
  // count, any, all with a comparison: which one. Its left side is children[0]'s elements, its right side children[1].
  ExpressionKind comparison = ExpressionKind::kLiteral;
};

}  // namespace athanor

#pragma once
// The syntax tree of expressions: expression_parser.cpp makes it, expression.cpp evaluates it.

#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace athanor {

enum class ExpressionKind {
  kLiteral,
  kPath,
  kNegate,  // -a
  kAdd,     // a + b; the operators below likewise
  kSubtract,
  kMultiply,
  kDivide,
  kEqual,  // a == b; the comparisons below likewise
  kUnequal,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,  // a in [b, ...]
  kNot,
  kAnd,
  kOr,
  kMax,  // max of lists; the functions below likewise
  kMin,
  kSum,
  kMean,
  kCount,  // count(list), or count(list comparison): the elements for which it holds
  kAny,
  kAll,
  kLength,  // len(text or spans)
  kHas,
  kDefault,  // default(a, b)
  kMatches,  // matches(a, "pattern")
};

struct ExpressionNode {
  ExpressionKind kind = ExpressionKind::kLiteral;
  size_t position = 0;  // position in the expression, from 1
  std::vector<std::unique_ptr<ExpressionNode>> children;
  std::variant<bool, double, std::string> literal;
  std::vector<std::variant<std::string, size_t>> steps;  // steps of a path
  // The comparison of count, any and all, if they have one. Its left side is the elements of children[0], its right
  // side children[1].
  ExpressionKind comparison = ExpressionKind::kLiteral;
};

}  // namespace athanor

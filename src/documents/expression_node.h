#pragma once
// The syntax tree of expressions: expression_parser.cpp makes it, expression.cpp evaluates it.

#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace athanor::inline documents {

enum class ExpressionKind {
  kLiteral,
  kPath,
  kNegate,        // -a
  kAdd,           // a + b
  kSubtract,      // a - b
  kMultiply,      // a * b
  kDivide,        // a / b
  kEqual,         // a == b
  kUnequal,       // a != b
  kLess,          // a < b
  kLessEqual,     // a <= b
  kGreater,       // a > b
  kGreaterEqual,  // a >= b
  kIn,            // a in [b, ...]
  kNot,           // not a
  kAnd,           // a and b
  kOr,            // a or b
  kMax,           // max(list)
  kMin,           // min(list)
  kSum,           // sum(list)
  kMean,          // mean(list)
  kCount,         // count(list), or count(list > 0.5): the number of elements for which the comparison holds
  kAny,           // any(list > 0.5)
  kAll,           // all(list > 0.5)
  kLength,        // len(text), or len(spans): the number of characters
  kHas,           // has(a): a is not missing
  kDefault,       // default(a, b): b if a is missing
  kMatches,       // matches(text, "pattern")
};

struct ExpressionNode {
  ExpressionKind kind = ExpressionKind::kLiteral;
  size_t position = 0;                                    // position in the expression, in bytes from 1
  std::vector<std::unique_ptr<ExpressionNode>> children;  // operands or arguments, in their order
  std::variant<bool, double, std::string> literal;        // value of a kLiteral
  std::vector<std::variant<std::string, size_t>> steps;   // steps of a kPath: names of members, indices from 0
  // The comparison of kCount, kAny and kAll; kLiteral if there is none. Its left side is each element of children[0],
  // its right side is children[1].
  ExpressionKind comparison = ExpressionKind::kLiteral;
};

}  // namespace athanor::inline documents

#pragma once
// A template as a tree: statements with expressions in them.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tasks/value.h"

namespace athanor::tasks {

/// An error at a place of a template. `offset` is a byte of the source in which every line ends with \n.
class TemplateError : public std::runtime_error {
 public:
  TemplateError(const std::string& message, size_t offset) : std::runtime_error(message), offset_(offset) {}
  size_t offset() const { return offset_; }

 private:
  size_t offset_;
};

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Expression {
  enum class Kind {
    kConstant,  // constant
    kName,      // name
    kList,      // parts: elements; the same for kTuple
    kTuple,
    kDict,       // parts: key, value, key, value, ...
    kAttribute,  // parts[0].name
    kItem,       // parts[0][parts[1]]
    kSlice,      // parts[0][parts[1]:parts[2]:parts[3]], null where nothing stands
    kCall,       // parts[0](parts[1], ..., keywords)
    kFilter,     // parts[0] | name(parts[1], ..., keywords)
    kTest,       // parts[0] is name(parts[1], ..., keywords)
    kNegative,
    kPositive,
    kNot,
    kBinary,   // parts[0] name parts[1], with the name of an operator
    kConcat,   // parts joined by ~
    kCompare,  // parts[0] operators[0] parts[1] operators[1] parts[2] ...
    kAnd,
    kOr,
    kCondition,  // parts[1] if parts[0] else parts[2]; null: no else
  };
  Kind kind;
  size_t offset = 0;
  std::string name = {};
  Value constant = {};
  std::vector<ExpressionPtr> parts = {};
  std::vector<std::pair<std::string, ExpressionPtr>> keywords = {};
  std::vector<std::string> operators = {};
};

/// What a value is assigned to: a name, an attribute of a namespace, or several targets.
struct Target {
  std::string name, attribute;
  std::vector<Target> parts;
};

struct Statement;
using Statements = std::vector<Statement>;

struct Branch {
  ExpressionPtr condition;  ///< null: else
  Statements body;
};

struct Statement {
  enum class Kind { kText, kOutput, kIf, kFor, kSet, kSetText };
  Kind kind;
  size_t offset = 0;
  std::string text = {};                 // kText
  ExpressionPtr expression = nullptr;    // kOutput, kSet: the value; kFor: what is iterated
  ExpressionPtr filter = nullptr;        // kFor: `if` behind it, or null
  Target target = {};                    // kFor, kSet, kSetText
  std::vector<Branch> branches = {};     // kIf
  Statements body = {}, otherwise = {};  // kFor, kSetText
};

/// @param source  with \n at the ends of lines. @throws TemplateError.
Statements parse_template(std::string_view source);
/// Parses a single expression, without braces around it.
ExpressionPtr parse_expression(std::string_view source);

}  // namespace athanor::tasks

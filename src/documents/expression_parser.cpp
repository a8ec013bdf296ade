// The grammar of expressions, by recursive descent, loosest first:
//
//   or         and { "or" and }                                 also ||
//   and        not { "and" not }                                also &&
//   not        { "not" } comparison                             also !
//   comparison sum [ (== | != | < | <= | > | >=) sum | "in" "[" literal { "," literal } "]" ]
//   sum        product { (+ | -) product }
//   product    unary { (* | /) unary }
//   unary      { "-" } primary
//   primary    number | string | "true" | "false" | function "(" ... ")" | path | "(" or ")"
//   path       [ "$" ] [ "." ] name { "." name | "[" index or string "]" }

#include <map>

#include "base/text.h"
#include "documents/expression.h"
#include "documents/expression_node.h"
#include "documents/expression_scanner.h"

namespace athanor::inline documents {
namespace {

using Kind = ExpressionKind;
using NodePtr = std::unique_ptr<ExpressionNode>;

// No expression that a person writes is longer; evaluation recurses over the tree.
constexpr size_t kMaxNodes = 2000;
constexpr int kMaxDepth = 100;
constexpr size_t kMaxIndex = 1'000'000'000;

const std::map<std::string_view, Kind>& functions() {
  static const std::map<std::string_view, Kind> all{
      {"max", Kind::kMax},     {"min", Kind::kMin},         {"sum", Kind::kSum},        {"mean", Kind::kMean},
      {"count", Kind::kCount}, {"any", Kind::kAny},         {"all", Kind::kAll},        {"len", Kind::kLength},
      {"has", Kind::kHas},     {"default", Kind::kDefault}, {"matches", Kind::kMatches}};
  return all;
}

std::string function_names() {
  std::vector<std::string> names;
  for (const auto& [name, kind] : functions()) names.emplace_back(name);
  return join(names);
}

// Returns true if the node's value is true or false for every document.
bool is_condition(const ExpressionNode& node) {
  if (node.kind == Kind::kLiteral) return std::holds_alternative<bool>(node.literal);
  return (node.kind >= Kind::kEqual && node.kind <= Kind::kOr) || node.kind == Kind::kAny || node.kind == Kind::kAll ||
         node.kind == Kind::kHas || node.kind == Kind::kMatches;
}
bool may_be_condition(const ExpressionNode& node) {
  return is_condition(node) || node.kind == Kind::kPath || node.kind == Kind::kDefault;
}

class Parser : private ExpressionScanner {
 public:
  explicit Parser(std::string_view text) : ExpressionScanner(text) {}

  NodePtr parse() {
    if (const auto bad = find_invalid_utf8(rest())) fail_at(*bad, "invalid UTF-8");
    auto node = parse_or();
    if (skip_blanks(); !at_end()) {
      if (peek() == '=') fail_at(here(), "comparing is written ==");
      fail_at(here(), fmt::format("{} is not expected here", shown()));
    }
    must_be_condition(*node);
    return node;
  }
  std::vector<std::vector<std::string>> paths;

 private:
  void must_be_condition(const ExpressionNode& node) const {
    if (may_be_condition(node)) return;
    fail_at(node.position - 1, "a condition is needed here (a comparison, or something true or false)");
  }

  NodePtr make(Kind kind, size_t offset) {
    if (++num_nodes_ > kMaxNodes) fail_at(offset, "too long; give --keep or --drop several times");
    auto node = std::make_unique<ExpressionNode>();
    node->kind = kind;
    node->position = offset + 1;
    return node;
  }
  NodePtr make(Kind kind, size_t offset, NodePtr first, NodePtr second) {
    auto node = make(kind, offset);
    node->children.push_back(std::move(first));
    node->children.push_back(std::move(second));
    return node;
  }

  // ---- The grammar -------------------------------------------------------------------------------------------------

  // Counts the recursion depth of the grammar.
  struct Deeper {
    explicit Deeper(Parser& parser) : parser_(parser) {
      if (++parser_.depth_ > kMaxDepth) fail_at(parser_.here(), "nested too deep");
    }
    ~Deeper() { --parser_.depth_; }
    Parser& parser_;
  };

  NodePtr parse_or() {
    const Deeper deeper(*this);
    auto left = parse_and();
    for (;;) {
      skip_blanks();
      const size_t offset = here();
      if (!take_word("or") && !take("||")) return left;
      left = join_conditions(Kind::kOr, offset, std::move(left), parse_and());
    }
  }
  NodePtr parse_and() {
    auto left = parse_not();
    for (;;) {
      skip_blanks();
      const size_t offset = here();
      if (!take_word("and") && !take("&&")) return left;
      left = join_conditions(Kind::kAnd, offset, std::move(left), parse_not());
    }
  }
  NodePtr join_conditions(Kind kind, size_t offset, NodePtr left, NodePtr right) {
    must_be_condition(*left);
    must_be_condition(*right);
    return make(kind, offset, std::move(left), std::move(right));
  }

  NodePtr parse_not() {
    const Deeper deeper(*this);
    skip_blanks();
    const size_t offset = here();
    const bool sign = take("!");
    if (!sign && !take_word("not")) return parse_comparison();
    auto node = make(Kind::kNot, offset);
    node->children.push_back(parse_not());
    must_be_condition(*node->children[0]);
    return node;
  }

  // Returns kLiteral if there is no comparison.
  Kind take_comparison() {
    if (take("==")) return Kind::kEqual;
    if (take("!=")) return Kind::kUnequal;
    if (take("<=")) return Kind::kLessEqual;
    if (take(">=")) return Kind::kGreaterEqual;
    if (take("<")) return Kind::kLess;
    if (take(">")) return Kind::kGreater;
    return Kind::kLiteral;
  }

  NodePtr parse_comparison() {
    auto left = parse_sum();
    skip_blanks();
    const size_t offset = here();
    if (take_word("in")) return parse_in(offset, std::move(left));
    const Kind kind = take_comparison();
    if (kind == Kind::kLiteral) return left;
    auto node = make(kind, offset, std::move(left), parse_sum());
    skip_blanks();
    if (const size_t next = here(); take_comparison() != Kind::kLiteral) {
      fail_at(next, "comparisons do not chain; join two with \"and\"");
    }
    return node;
  }

  NodePtr parse_in(size_t offset, NodePtr left) {
    auto node = make(Kind::kIn, offset);
    node->children.push_back(std::move(left));
    expect("[");
    do {
      skip_blanks();
      const size_t at = here();
      auto value = parse_unary();
      if (value->kind != Kind::kLiteral) fail_at(at, "a string or number is expected in the brackets after \"in\"");
      node->children.push_back(std::move(value));
    } while (take(","));
    expect("]");
    return node;
  }

  NodePtr parse_sum() {
    auto left = parse_product();
    for (;;) {
      skip_blanks();
      const size_t offset = here();
      const Kind kind = take("+") ? Kind::kAdd : take("-") ? Kind::kSubtract : Kind::kLiteral;
      if (kind == Kind::kLiteral) return left;
      left = make(kind, offset, std::move(left), parse_product());
    }
  }
  NodePtr parse_product() {
    auto left = parse_unary();
    for (;;) {
      skip_blanks();
      const size_t offset = here();
      const Kind kind = take("*") ? Kind::kMultiply : take("/") ? Kind::kDivide : Kind::kLiteral;
      if (kind == Kind::kLiteral) return left;
      left = make(kind, offset, std::move(left), parse_unary());
    }
  }
  NodePtr parse_unary() {
    const Deeper deeper(*this);
    skip_blanks();
    const size_t offset = here();
    if (!take("-")) return parse_primary();
    auto value = parse_unary();
    if (value->kind == Kind::kLiteral && std::holds_alternative<double>(value->literal)) {
      value->literal = -std::get<double>(value->literal);
      return value;
    }
    auto node = make(Kind::kNegate, offset);
    node->children.push_back(std::move(value));
    return node;
  }

  NodePtr parse_primary() {
    skip_blanks();
    const size_t offset = here();
    const char c = peek();
    if (is_digit(c)) {
      auto node = make(Kind::kLiteral, offset);
      node->literal = take_literal_number();
      return node;
    }
    if (at_string()) {
      auto node = make(Kind::kLiteral, offset);
      node->literal = take_literal_string();
      return node;
    }
    if (take("(")) {
      auto node = parse_or();
      expect(")");
      return node;
    }
    if (c == '$' || c == '.') return parse_path();
    if (peek_name().empty()) fail_at(offset, fmt::format("a value is expected, not {}", shown()));
    return parse_word();
  }

  NodePtr parse_word() {
    const size_t offset = here();
    const std::string name(take_name());
    if (name == "true" || name == "false") {
      auto node = make(Kind::kLiteral, offset);
      node->literal = name == "true";
      return node;
    }
    if (name == "null") fail_at(offset, "null is a missing value: write has(path), or not has(path)");
    if (name == "and" || name == "or" || name == "not" || name == "in") {
      fail_at(offset, fmt::format("a value is expected, not \"{}\"", name));
    }
    if (take("(")) {
      const auto function = functions().find(name);
      if (function == functions().end()) {
        fail_at(offset, fmt::format("no function {}; there is {}", printable(name), function_names()));
      }
      return parse_call(function->second, offset);
    }
    go_to(offset);
    return parse_path();
  }

  NodePtr parse_call(Kind kind, size_t offset) {
    auto node = make(kind, offset);
    if (kind == Kind::kHas) {
      node->children.push_back(parse_path());
    } else if (kind == Kind::kDefault || kind == Kind::kMatches) {
      node->children.push_back(parse_sum());
      expect(",");
      skip_blanks();
      const size_t at = here();
      node->children.push_back(parse_sum());
      const auto& second = *node->children[1];
      if (kind == Kind::kMatches &&
          (second.kind != Kind::kLiteral || !std::holds_alternative<std::string>(second.literal))) {
        fail_at(at, "a pattern in quotes is expected, such as \"*.org/*\"");
      }
    } else {
      node->children.push_back(parse_path());
      parse_element_test(*node);
    }
    expect(")");
    return node;
  }

  // any(list > 0.5): the comparison is made with each element.
  void parse_element_test(ExpressionNode& node) {
    const bool needed = node.kind == Kind::kAny || node.kind == Kind::kAll;
    if (!needed && node.kind != Kind::kCount) return;
    skip_blanks();
    const size_t offset = here();
    node.comparison = take_comparison();
    if (node.comparison != Kind::kLiteral) {
      node.children.push_back(parse_sum());
    } else if (needed) {
      fail_at(offset, "a comparison is expected, as in any(attributes.x > 0.5)");
    }
  }

  NodePtr parse_path() {
    skip_blanks();
    auto node = make(Kind::kPath, here());
    const bool root = take("$");
    const bool dotted = peek() == '.';
    if (dotted) skip();
    if (!root || dotted || peek() != '[') {
      const size_t offset = here();
      const auto name = take_name();
      if (name.empty()) fail_at(offset, fmt::format("the name of a field is expected, not {}", shown()));
      node->steps.emplace_back(std::string(name));
    }
    while (peek() == '.' || peek() == '[') take_step(*node);
    keep_path(*node);
    return node;
  }

  void take_step(ExpressionNode& node) {
    const char sign = peek();
    skip();
    if (sign == '.') {
      const size_t offset = here();
      const auto name = take_name();
      if (name.empty()) {
        fail_at(offset, fmt::format("a name is expected after the dot, not {}; others go into [\"...\"]", shown()));
      }
      node.steps.emplace_back(std::string(name));
      return;
    }
    skip_blanks();
    if (at_string()) {
      node.steps.emplace_back(take_literal_string());
    } else if (is_digit(peek())) {
      size_t index = 0;
      for (; is_digit(peek()); skip()) {
        index = index * 10 + static_cast<size_t>(peek() - '0');
        if (index > kMaxIndex) fail_at(here(), "this index is too large");
      }
      node.steps.emplace_back(index);
    } else {
      fail_at(here(), fmt::format("an index or a name in quotes is expected, not {}", shown()));
    }
    expect("]");
  }

  void keep_path(const ExpressionNode& node) {
    std::vector<std::string> names;
    for (const auto& step : node.steps) {
      if (!std::holds_alternative<std::string>(step)) break;
      names.push_back(std::get<std::string>(step));
    }
    if (names.empty()) fail_at(node.position - 1, "a path begins with a name");
    paths.push_back(std::move(names));
  }

  size_t num_nodes_ = 0;
  int depth_ = 0;
};

}  // namespace

Expression Expression::parse(std::string_view text) {
  Parser parser(text);
  Expression expression;
  expression.root_ = parser.parse();
  expression.paths_ = std::move(parser.paths);
  return expression;
}

}  // namespace athanor::inline documents

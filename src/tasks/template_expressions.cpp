#include "tasks/template_expressions.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/text.h"

namespace athanor::tasks {
std::string show_token(const Token& token) {
  switch (token.kind) {
    case Token::Kind::kEnd: return "the end of the template";
    case Token::Kind::kOutputEnd: return "}}";
    case Token::Kind::kBlockEnd: return "%}";
    case Token::Kind::kString: return "the string \"" + printable(token.text) + "\"";
    default: return "\"" + token.text + "\"";
  }
}

void ExpressionParser::fail_here(const std::string& what) const { throw TemplateError(what, here().offset); }

bool ExpressionParser::take(std::string_view symbol) {
  if (!is(symbol)) return false;
  advance();
  return true;
}

bool ExpressionParser::take_word(std::string_view word) {
  if (!is_word(word)) return false;
  advance();
  return true;
}

std::string ExpressionParser::take_name(std::string_view what) {
  if (here().kind != Token::Kind::kName) fail_here(fmt::format("{} is expected, not {}", what, show_token(here())));
  std::string name = here().text;
  advance();
  return name;
}

void ExpressionParser::expect(Token::Kind kind, std::string_view shown) {
  if (here().kind != kind) fail_here(fmt::format("{} is expected, not {}", shown, show_token(here())));
  advance();
}

void ExpressionParser::expect(std::string_view symbol) {
  if (!take(symbol)) fail_here(fmt::format("\"{}\" is expected, not {}", symbol, show_token(here())));
}

ExpressionPtr ExpressionParser::make(Expression::Kind kind, size_t offset) const {
  return std::make_unique<Expression>(Expression{kind, offset});
}

ExpressionPtr ExpressionParser::binary(ExpressionPtr left, std::string name, size_t offset, ExpressionPtr right) const {
  auto node = make(Expression::Kind::kBinary, offset);
  node->name = std::move(name);
  node->parts.push_back(std::move(left));
  node->parts.push_back(std::move(right));
  return node;
}

bool ExpressionParser::ends_list() const {
  return here().kind == Token::Kind::kOutputEnd || here().kind == Token::Kind::kBlockEnd ||
         here().kind == Token::Kind::kEnd || is(")");
}

ExpressionPtr ExpressionParser::parse_list_without_brackets(bool with_condition) {
  const size_t offset = here().offset;
  auto first = parse(with_condition);
  if (!is(",")) return first;
  auto tuple = make(Expression::Kind::kTuple, offset);
  tuple->parts.push_back(std::move(first));
  while (take(",") && !ends_list()) tuple->parts.push_back(parse(with_condition));
  return tuple;
}

void ExpressionParser::count_link() {
  if (++links_ > kMaxTemplateLinks) fail_here(fmt::format("an expression of more than {} steps", kMaxTemplateLinks));
}

ExpressionPtr ExpressionParser::parse(bool with_condition) {
  if (depth_ == 0) links_ = 0;
  if (++depth_ > kMaxTemplateDepth) fail_here(fmt::format("more than {} levels", kMaxTemplateDepth));
  auto node = with_condition ? parse_condition() : parse_or();
  --depth_;
  return node;
}

ExpressionPtr ExpressionParser::parse_condition() {
  auto value = parse_or();
  while (is_word("if")) {
    count_link();
    auto node = make(Expression::Kind::kCondition, here().offset);
    advance();
    node->parts.push_back(parse_or());
    node->parts.push_back(std::move(value));
    node->parts.push_back(take_word("else") ? parse() : nullptr);
    value = std::move(node);
  }
  return value;
}

ExpressionPtr ExpressionParser::parse_or() {
  auto left = parse_and();
  while (is_word("or")) {
    count_link();
    auto node = make(Expression::Kind::kOr, here().offset);
    advance();
    node->parts.push_back(std::move(left));
    node->parts.push_back(parse_and());
    left = std::move(node);
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_and() {
  auto left = parse_not();
  while (is_word("and")) {
    count_link();
    auto node = make(Expression::Kind::kAnd, here().offset);
    advance();
    node->parts.push_back(std::move(left));
    node->parts.push_back(parse_not());
    left = std::move(node);
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_not() {
  std::vector<size_t> offsets;
  while (is_word("not")) {
    offsets.push_back(here().offset);
    advance();
    if (offsets.size() > kMaxTemplateDepth) fail_here("too many `not`");
  }
  auto value = parse_compare();
  for (size_t i = offsets.size(); i-- > 0;) {
    auto node = make(Expression::Kind::kNot, offsets[i]);
    node->parts.push_back(std::move(value));
    value = std::move(node);
  }
  return value;
}

ExpressionPtr ExpressionParser::parse_compare() {
  auto first = parse_sum();
  ExpressionPtr compare;
  while (true) {
    const size_t offset = here().offset;
    std::string name;
    for (const std::string_view symbol : {"==", "!=", "<", "<=", ">", ">="})
      if (is(symbol)) name = symbol;
    if (is_word("in")) name = "in";
    const Token& next = tokens_[std::min(at_ + 1, tokens_.size() - 1)];
    if (is_word("not") && next.kind == Token::Kind::kName && next.text == "in") name = "not in";
    if (name.empty()) break;
    advance();
    if (name == "not in") advance();
    if (!compare) {
      compare = make(Expression::Kind::kCompare, offset);
      compare->parts.push_back(std::move(first));
    }
    compare->operators.push_back(name);
    compare->parts.push_back(parse_sum());
  }
  return compare ? std::move(compare) : std::move(first);
}

ExpressionPtr ExpressionParser::parse_sum() {
  auto left = parse_concat();
  while (is("+") || is("-")) {
    count_link();
    const Token token = here();
    advance();
    left = binary(std::move(left), token.text, token.offset, parse_concat());
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_concat() {
  auto first = parse_product();
  if (!is("~")) return first;
  auto node = make(Expression::Kind::kConcat, here().offset);
  node->parts.push_back(std::move(first));
  while (take("~")) node->parts.push_back(parse_product());
  return node;
}

ExpressionPtr ExpressionParser::parse_product() {
  auto left = parse_power();
  while (is("*") || is("/") || is("//") || is("%")) {
    count_link();
    const Token token = here();
    advance();
    left = binary(std::move(left), token.text, token.offset, parse_power());
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_power() {
  auto left = parse_signed(true);
  while (is("**")) {
    count_link();
    const size_t offset = here().offset;
    advance();
    left = binary(std::move(left), "**", offset, parse_signed(true));
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_signed(bool with_filters) {
  if (++depth_ > kMaxTemplateDepth) fail_here(fmt::format("more than {} levels", kMaxTemplateDepth));
  ExpressionPtr value;
  if (is("-") || is("+")) {
    value = make(is("-") ? Expression::Kind::kNegative : Expression::Kind::kPositive, here().offset);
    advance();
    value->parts.push_back(parse_signed(false));
  } else {
    value = parse_primary();
  }
  value = parse_postfix(std::move(value));
  if (with_filters) value = parse_filters(std::move(value));
  --depth_;
  return value;
}

}  // namespace athanor::tasks

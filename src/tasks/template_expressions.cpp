#include "tasks/template_expressions.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/text.h"
#include "tasks/python_repr.h"

namespace athanor::tasks {
namespace {

std::string show(const Token& token) {
  switch (token.kind) {
    case Token::Kind::kEnd: return "the end of the template";
    case Token::Kind::kOutputEnd: return "}}";
    case Token::Kind::kBlockEnd: return "%}";
    case Token::Kind::kString: return "the string \"" + printable(token.text) + "\"";
    default: return "\"" + token.text + "\"";
  }
}

}  // namespace

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
  if (here().kind != Token::Kind::kName) fail_here(fmt::format("{} is expected, not {}", what, show(here())));
  std::string name = here().text;
  advance();
  return name;
}

void ExpressionParser::expect(Token::Kind kind, std::string_view shown) {
  if (here().kind != kind) fail_here(fmt::format("{} is expected, not {}", shown, show(here())));
  advance();
}

void ExpressionParser::expect(std::string_view symbol) {
  if (!take(symbol)) fail_here(fmt::format("\"{}\" is expected, not {}", symbol, show(here())));
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

ExpressionPtr ExpressionParser::parse(bool with_condition) {
  if (++depth_ > kMaxTemplateDepth) fail_here(fmt::format("more than {} levels", kMaxTemplateDepth));
  auto node = with_condition ? parse_condition() : parse_or();
  --depth_;
  return node;
}

ExpressionPtr ExpressionParser::parse_condition() {
  auto value = parse_or();
  while (is_word("if")) {
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
    const Token token = here();
    advance();
    left = binary(std::move(left), token.text, token.offset, parse_power());
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_power() {
  auto left = parse_signed(true);
  while (is("**")) {
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

ExpressionPtr ExpressionParser::parse_primary() {
  const Token token = here();
  if (token.kind == Token::Kind::kName) {
    advance();
    auto node = make(Expression::Kind::kConstant, token.offset);
    if (token.text == "true" || token.text == "True" || token.text == "false" || token.text == "False") {
      node->constant = Value::of_bool(token.text == "true" || token.text == "True");
    } else if (token.text != "none" && token.text != "None") {
      for (const char* word : {"if", "else", "in", "is", "and", "or", "not"})
        if (token.text == word) throw TemplateError(fmt::format("\"{}\" has no place here", word), token.offset);
      node->kind = Expression::Kind::kName;
      node->name = token.text;
    }
    return node;
  }
  if (token.kind == Token::Kind::kString) {
    auto node = make(Expression::Kind::kConstant, token.offset);
    std::string joined;
    for (; here().kind == Token::Kind::kString; advance()) joined += here().text;
    node->constant = Value::of_text(std::move(joined));
    return node;
  }
  if (token.kind == Token::Kind::kInteger || token.kind == Token::Kind::kFloat) {
    advance();
    auto node = make(Expression::Kind::kConstant, token.offset);
    try {
      node->constant = token.kind == Token::Kind::kFloat ? Value::of_float(*read_float(token.text))
                                                         : Value::of_int(*read_int(token.text));
    } catch (const PythonError& error) {
      throw TemplateError(error.what(), token.offset);
    }
    return node;
  }
  if (is("(") || is("[")) return parse_brackets();
  if (is("{")) return parse_dict();
  fail_here(fmt::format("a value is expected, not {}", show(token)));
}

ExpressionPtr ExpressionParser::parse_brackets() {
  const size_t offset = here().offset;
  if (take("(")) {
    if (take(")")) return make(Expression::Kind::kTuple, offset);
    auto value = parse_list_without_brackets(true);
    expect(")");
    return value;
  }
  expect("[");
  auto list = make(Expression::Kind::kList, offset);
  while (!take("]")) {
    if (!list->parts.empty()) {
      expect(",");
      if (take("]")) break;
    }
    list->parts.push_back(parse());
  }
  return list;
}

ExpressionPtr ExpressionParser::parse_dict() {
  auto dict = make(Expression::Kind::kDict, here().offset);
  expect("{");
  while (!take("}")) {
    if (!dict->parts.empty()) {
      expect(",");
      if (take("}")) break;
    }
    dict->parts.push_back(parse());
    expect(":");
    dict->parts.push_back(parse());
  }
  return dict;
}

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr value) {
  while (true) {
    if (is(".") || is("[")) {
      value = parse_subscript(std::move(value));
    } else if (is("(")) {
      auto call = make(Expression::Kind::kCall, here().offset);
      call->parts.push_back(std::move(value));
      parse_arguments(*call);
      value = std::move(call);
    } else {
      return value;
    }
  }
}

ExpressionPtr ExpressionParser::parse_filters(ExpressionPtr value) {
  while (true) {
    if (is("|")) {
      advance();
      auto filter = make(Expression::Kind::kFilter, here().offset);
      filter->name = take_name("the name of a filter");
      filter->parts.push_back(std::move(value));
      if (is("(")) parse_arguments(*filter);
      value = std::move(filter);
    } else if (is_word("is")) {
      value = parse_test(std::move(value));
    } else if (is("(")) {
      fail_here("the result of a filter cannot be called");
    } else {
      return value;
    }
  }
}

ExpressionPtr ExpressionParser::parse_subscript(ExpressionPtr value) {
  const size_t offset = here().offset;
  auto item = make(Expression::Kind::kItem, offset);
  if (take(".")) {
    item->parts.push_back(std::move(value));
    if (here().kind == Token::Kind::kInteger) {
      item->parts.push_back(parse_primary());
      return item;
    }
    item->kind = Expression::Kind::kAttribute;
    item->name = take_name("the name of an attribute");
    return item;
  }
  expect("[");
  item->parts.push_back(std::move(value));
  const auto bound = [&]() -> ExpressionPtr { return is(":") || is("]") ? nullptr : parse(); };
  item->parts.push_back(bound());
  if (is(":")) {
    item->kind = Expression::Kind::kSlice;
    item->parts.resize(4);
    for (size_t i = 2; i < 4 && take(":"); ++i) item->parts[i] = bound();
  } else if (!item->parts[1]) {
    fail_here("an index is missing");
  }
  if (is(",")) fail_here("this form has no indexes with commas");
  expect("]");
  return item;
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr value) {
  advance();
  const size_t offset = here().offset;
  const bool negated = take_word("not");
  auto test = make(Expression::Kind::kTest, here().offset);
  test->name = take_name("the name of a test");
  test->parts.push_back(std::move(value));
  const auto kind = here().kind;
  if (is("(")) {
    parse_arguments(*test);
  } else if ((kind == Token::Kind::kName && !is_word("else") && !is_word("or") && !is_word("and")) ||
             kind == Token::Kind::kString || kind == Token::Kind::kInteger || kind == Token::Kind::kFloat || is("[") ||
             is("{")) {
    if (is_word("is")) fail_here("tests cannot be chained");
    test->parts.push_back(parse_postfix(parse_primary()));
  }
  if (!negated) return test;
  auto node = make(Expression::Kind::kNot, offset);
  node->parts.push_back(std::move(test));
  return node;
}

void ExpressionParser::parse_arguments(Expression& call) {
  expect("(");
  for (bool first = true; !take(")"); first = false) {
    if (!first) {
      expect(",");
      if (take(")")) return;
    }
    if (is("*") || is("**")) fail_here("this form has no * before arguments");
    const Token& next = tokens_[std::min(at_ + 1, tokens_.size() - 1)];
    if (here().kind == Token::Kind::kName && next.kind == Token::Kind::kOperator && next.text == "=") {
      const std::string name = take_name("a name");
      advance();
      call.keywords.emplace_back(name, parse());
    } else if (!call.keywords.empty()) {
      fail_here("an argument without a name behind one with a name");
    } else {
      call.parts.push_back(parse());
    }
  }
}

}  // namespace athanor::tasks

// The parts of expressions that bind most tightly: values, members, calls, filters and tests.

#include <fmt/core.h>

#include <algorithm>

#include "tasks/python_repr.h"
#include "tasks/template_expressions.h"

namespace athanor::tasks {

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
  fail_here(fmt::format("a value is expected, not {}", show_token(token)));
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
    if (is(".") || is("[") || is("(")) count_link();
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
    if (is("|") || is_word("is")) count_link();
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

#pragma once
// The grammar of Jinja2's expressions. Its ranks differ from Python's in places: ** binds to the left, - binds more
// tightly than **, and filters and tests bind more tightly than every operator except a sign before them.

#include <string>
#include <vector>

#include "tasks/template_lexer.h"
#include "tasks/template_nodes.h"

namespace athanor::tasks {

/// Deeper templates are refused, since each level takes room on the stack.
inline constexpr int kMaxTemplateDepth = 100;
/// So are expressions with more operators, filters, members and calls that apply to what stands before them: each is a
/// level, too, without a bracket. Python's own parser takes fewer.
inline constexpr int kMaxTemplateLinks = 500;

/// Names a token in messages.
std::string show_token(const Token& token);

/// Reads expressions from tokens, from left to right.
class ExpressionParser {
 public:
  /// @param tokens  end with kEnd, and must outlive the parser.
  explicit ExpressionParser(const std::vector<Token>& tokens) : tokens_(tokens) {}

  const Token& here() const { return tokens_[at_]; }
  void advance() { at_ += at_ + 1 < tokens_.size(); }
  bool is(std::string_view symbol) const { return here().kind == Token::Kind::kOperator && here().text == symbol; }
  bool is_word(std::string_view word) const { return here().kind == Token::Kind::kName && here().text == word; }
  bool take(std::string_view symbol);
  bool take_word(std::string_view word);
  std::string take_name(std::string_view what);
  void expect(Token::Kind kind, std::string_view shown);

  ExpressionPtr parse(bool with_condition = true);
  /// Expressions with commas between them are a tuple.
  ExpressionPtr parse_list_without_brackets(bool with_condition);

 private:
  [[noreturn]] void fail_here(const std::string& what) const;
  void expect(std::string_view symbol);
  bool ends_list() const;
  ExpressionPtr make(Expression::Kind kind, size_t offset) const;
  ExpressionPtr binary(ExpressionPtr left, std::string name, size_t offset, ExpressionPtr right) const;

  ExpressionPtr parse_condition();
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_compare();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concat();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_signed(bool with_filters);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_brackets();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_postfix(ExpressionPtr value);
  ExpressionPtr parse_filters(ExpressionPtr value);
  ExpressionPtr parse_subscript(ExpressionPtr value);
  ExpressionPtr parse_test(ExpressionPtr value);
  void parse_arguments(Expression& call);
  void count_link();

  const std::vector<Token>& tokens_;
  size_t at_ = 0;
  int depth_ = 0, links_ = 0;  // links_ of the whole expression
};

}  // namespace athanor::tasks

// The grammar of Jinja2's statements, without those that lm_eval's task files do not use.

#include <fmt/core.h>

#include <algorithm>

#include "base/text.h"
#include "tasks/template_expressions.h"
#include "tasks/template_nodes.h"

namespace athanor::tasks {
namespace {

class StatementParser {
 public:
  explicit StatementParser(std::string_view source) : tokens_(cut_template(source)), expressions_(tokens_) {}

  Statements parse_all() {
    Statements all = parse_until({});
    return all;
  }

 private:
  using Kind = Token::Kind;

  const Token& here() const { return expressions_.here(); }
  [[noreturn]] void fail_here(const std::string& what) const { throw TemplateError(what, here().offset); }

  // Parses until a block that begins with one of `ends`, whose name is taken; its end is not.
  Statements parse_until(const std::vector<std::string>& ends) {
    if (++depth_ > kMaxTemplateDepth) fail_here(fmt::format("more than {} levels", kMaxTemplateDepth));
    Statements statements;
    while (true) {
      const Token token = here();
      if (token.kind == Kind::kEnd) {
        if (!ends.empty()) fail_here(fmt::format("{{% {} %}} is missing", ends.back()));
        break;
      }
      expressions_.advance();
      if (token.kind == Kind::kText) {
        statements.push_back({Statement::Kind::kText, token.offset, token.text});
      } else if (token.kind == Kind::kOutputBegin) {
        Statement output{Statement::Kind::kOutput, token.offset};
        output.expression = expressions_.parse_list_without_brackets(true);
        expressions_.expect(Kind::kOutputEnd, "}}");
        statements.push_back(std::move(output));
      } else {
        const std::string name = expressions_.take_name("the name of a block");
        if (std::find(ends.begin(), ends.end(), name) != ends.end()) {
          end_ = name;
          break;
        }
        statements.push_back(parse_block(name, token.offset));
      }
    }
    --depth_;
    return statements;
  }

  void end_block() { expressions_.expect(Kind::kBlockEnd, "%}"); }

  Statement parse_block(const std::string& name, size_t offset) {
    if (name == "if") return parse_if(offset);
    if (name == "for") return parse_for(offset);
    if (name == "set") return parse_set(offset);
    for (const char* misplaced : {"else", "elif", "endif", "endfor", "endset"})
      if (name == misplaced) throw TemplateError(fmt::format("{{% {} %}} has no beginning", name), offset);
    throw TemplateError(fmt::format("this form has no block {}{}; it has if, for, set and raw", name,
                                    did_you_mean(name, {"if", "for", "set", "raw"})),
                        offset);
  }

  Statement parse_if(size_t offset) {
    Statement statement{Statement::Kind::kIf, offset};
    do {
      Branch branch;
      if (statement.branches.empty() || end_ == "elif")
        branch.condition = expressions_.parse_list_without_brackets(false);
      end_block();
      const bool is_else = !branch.condition;
      branch.body =
          parse_until(is_else ? std::vector<std::string>{"endif"} : std::vector<std::string>{"elif", "else", "endif"});
      statement.branches.push_back(std::move(branch));
    } while (end_ != "endif");
    end_block();
    return statement;
  }

  Statement parse_for(size_t offset) {
    Statement statement{Statement::Kind::kFor, offset};
    statement.target = parse_targets();
    if (!expressions_.take_word("in")) fail_here("`in` is missing");
    statement.expression = expressions_.parse_list_without_brackets(false);
    if (expressions_.take_word("if")) statement.filter = expressions_.parse();
    if (expressions_.is_word("recursive")) fail_here("this form has no recursive loops");
    end_block();
    statement.body = parse_until({"else", "endfor"});
    if (end_ == "else") {
      end_block();
      statement.otherwise = parse_until({"endfor"});
    }
    end_block();
    return statement;
  }

  Statement parse_set(size_t offset) {
    Statement statement{Statement::Kind::kSet, offset};
    statement.target = parse_targets();
    if (expressions_.take("=")) {
      statement.expression = expressions_.parse_list_without_brackets(true);
      end_block();
      return statement;
    }
    if (expressions_.is("|")) fail_here("this form has no filters for a set block");
    end_block();
    statement.kind = Statement::Kind::kSetText;
    statement.body = parse_until({"endset"});
    end_block();
    return statement;
  }

  Target parse_targets() {
    Target first = parse_target();
    if (!expressions_.is(",")) return first;
    Target all;
    all.parts.push_back(std::move(first));
    while (expressions_.take(",")) {
      if (here().kind != Kind::kName || expressions_.is_word("in")) break;
      all.parts.push_back(parse_target());
    }
    return all;
  }

  Target parse_target() {
    if (expressions_.take("(")) {
      if (++depth_ > kMaxTemplateDepth) fail_here(fmt::format("more than {} levels", kMaxTemplateDepth));
      Target inner = parse_targets();
      --depth_;
      if (!expressions_.take(")")) fail_here("`)` is missing");
      return inner;
    }
    Target target;
    target.name = expressions_.take_name("a name");
    if (expressions_.take(".")) target.attribute = expressions_.take_name("the name of an attribute");
    for (const char* word :
         {"true", "false", "none", "True", "False", "None", "loop", "not", "in", "is", "if", "else", "and", "or"})
      if (target.name == word) fail_here(fmt::format("{} cannot be set", target.name));
    return target;
  }

  std::vector<Token> tokens_;
  ExpressionParser expressions_;
  std::string end_;  // the name of the block that ended the last body
  int depth_ = 0;
};

}  // namespace

Statements parse_template(std::string_view source) { return StatementParser(source).parse_all(); }

ExpressionPtr parse_expression(std::string_view source) {
  const auto tokens = cut_expression(source);
  ExpressionParser parser(tokens);
  auto expression = parser.parse_list_without_brackets(true);
  parser.expect(Token::Kind::kEnd, "the end");
  return expression;
}

}  // namespace athanor::tasks

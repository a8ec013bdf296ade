#include "tasks/template.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "base/text.h"
#include "tasks/python_text.h"
#include "tasks/template_evaluator.h"
#include "tasks/template_nodes.h"

namespace athanor::tasks {

struct Template::Compiled {
  std::string what, source;
  Statements statements;
  ExpressionPtr single;                                       // the whole template, if it is one expression
  std::optional<std::pair<std::string, std::string>> equals;  // name and text, if `single` is: name == 'text'

  // "task x: doc_to_text, line 2, character 14, at "{{ choices": ..."
  [[noreturn]] void complain(const TemplateError& error) const {
    const size_t offset = std::min(error.offset(), source.size());
    const auto before = std::string_view(source).substr(0, offset);
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const size_t line_begin = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
    std::string near;
    for (const auto character : characters(std::string_view(source).substr(offset))) {
      if (num_characters(near) == 24) break;
      near += character;
    }
    fail<DataError>("{}, line {}, character {}{}: {}", what, line, num_characters(before.substr(line_begin)) + 1,
                    near.empty() ? "" : fmt::format(", at \"{}\"", printable(near)), error.what());
  }
};

namespace {

std::optional<std::pair<std::string, std::string>> find_equality(const Expression& expression) {
  using Node = Expression::Kind;
  if (expression.kind != Node::kCompare || expression.operators != std::vector<std::string>{"=="}) return std::nullopt;
  const auto &name = *expression.parts[0], &text = *expression.parts[1];
  if (name.kind != Node::kName || text.kind != Node::kConstant || !text.constant.is_text()) return std::nullopt;
  return std::pair(name.name, text.constant.text());
}

// Jinja reads \r\n and \r as ends of lines, and prints \n for them.
std::string with_plain_newlines(std::string_view source) {
  std::string out;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  return out;
}

}  // namespace

Template Template::compile(std::string_view source, std::string what) {
  auto compiled = std::make_shared<Compiled>();
  compiled->what = std::move(what);
  ATHANOR_CHECK_DATA(!find_invalid_utf8(source), "{}: the template is not UTF-8 at byte {}", compiled->what,
                     find_invalid_utf8(source).value_or(0));
  compiled->source = with_plain_newlines(source);
  try {
    compiled->statements = parse_template(compiled->source);
    check_names(compiled->statements);
  } catch (const TemplateError& error) {
    compiled->complain(error);
  }
  auto& statements = compiled->statements;
  if (statements.size() == 1 && statements[0].kind == Statement::Kind::kOutput)
    compiled->single = std::move(statements[0].expression);
  return Template(std::move(compiled));
}

Template Template::compile_expression(std::string_view source, std::string what) {
  auto compiled = std::make_shared<Compiled>();
  compiled->what = std::move(what);
  ATHANOR_CHECK_DATA(!find_invalid_utf8(source), "{}: the expression is not UTF-8 at byte {}", compiled->what,
                     find_invalid_utf8(source).value_or(0));
  compiled->source = with_plain_newlines(source);
  try {
    compiled->single = parse_expression(compiled->source);
    check_names(*compiled->single);
    compiled->equals = find_equality(*compiled->single);
  } catch (const TemplateError& error) {
    compiled->complain(error);
  }
  return Template(std::move(compiled));
}

std::string Template::render(const nlohmann::ordered_json& row) const {
  try {
    TemplateEvaluator evaluator(row);
    if (compiled_->single) return evaluator.print(*compiled_->single);
    std::string out;
    evaluator.run(compiled_->statements, out);
    return out;
  } catch (const TemplateError& error) {
    compiled_->complain(error);
  }
}

Value Template::evaluate(const nlohmann::ordered_json& row) const {
  if (!compiled_->single) return Value::of_text(render(row));
  try {
    const Value value = TemplateEvaluator(row).evaluate(*compiled_->single);
    try {
      value.defined();
    } catch (const PythonError& error) {
      throw TemplateError(error.what(), compiled_->single->offset);
    }
    return value;
  } catch (const TemplateError& error) {
    compiled_->complain(error);
  }
}

bool Template::holds(const nlohmann::ordered_json& row) const {
  if (compiled_->equals) {  // `subject == 'anatomy'` is asked of every row of a file, for each of 57 tasks
    const auto found = row.find(compiled_->equals->first);
    if (found != row.end() && found->is_string())
      return found->get_ref<const std::string&>() == compiled_->equals->second;
  }
  const Value value = evaluate(row);
  try {
    return truth(value);
  } catch (const PythonError& error) {
    compiled_->complain(TemplateError(error.what(), 0));
  }
}

const std::string& Template::what() const { return compiled_->what; }

}  // namespace athanor::tasks

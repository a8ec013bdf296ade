// Looks for the names of filters and tests before a template meets a row.

#include "tasks/template_arguments.h"
#include "tasks/template_evaluator.h"

namespace athanor::tasks {

void check_names(const Expression& expression) {
  try {
    if (expression.kind == Expression::Kind::kFilter) check_filter_name(expression.name);
    if (expression.kind == Expression::Kind::kTest) check_test_name(expression.name);
  } catch (const PythonError& error) {
    throw TemplateError(error.what(), expression.offset);
  }
  for (const auto& part : expression.parts)
    if (part) check_names(*part);
  for (const auto& [name, value] : expression.keywords) check_names(*value);
}

void check_names(const Statements& statements) {
  for (const auto& statement : statements) {
    if (statement.expression) check_names(*statement.expression);
    if (statement.filter) check_names(*statement.filter);
    for (const auto& branch : statement.branches) {
      if (branch.condition) check_names(*branch.condition);
      check_names(branch.body);
    }
    check_names(statement.body);
    check_names(statement.otherwise);
  }
}

}  // namespace athanor::tasks

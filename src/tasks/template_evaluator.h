#pragma once
// Runs the tree of a template with the members of a row as names.

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tasks/template_arguments.h"
#include "tasks/template_nodes.h"

namespace athanor::tasks {

class TemplateEvaluator {
 public:
  explicit TemplateEvaluator(const nlohmann::ordered_json& row) : row_(row), scopes_(1) {}

  /// Appends what the statements print to `out`. @throws TemplateError.
  void run(const Statements& statements, std::string& out);
  /// @throws TemplateError. The result may be undefined.
  Value evaluate(const Expression& expression);
  /// Returns str() of the expression's value. @throws TemplateError.
  std::string print(const Expression& expression);

 private:
  using Scope = std::map<std::string, Value>;

  void run(const Statement& statement, std::string& out);
  void run_loop(const Statement& statement, std::string& out);
  void assign(const Target& target, const Value& value, size_t offset);
  void count_step(size_t offset);

  Value look_up(const std::string& name) const;
  bool is_shadowed(const std::string& name) const;
  Value compute(const Expression& expression);
  Value compute_call(const Expression& expression);
  Value compute_function(const std::string& name, const Arguments& arguments);
  bool compute_compare(const Expression& expression);
  Arguments evaluate_arguments(const Expression& expression, std::string callee);

  const nlohmann::ordered_json& row_;
  std::vector<Scope> scopes_;
  int64_t steps_ = 0;
};

/// Throws TemplateError for filters and tests that this form does not have.
void check_names(const Statements& statements);
void check_names(const Expression& expression);

}  // namespace athanor::tasks

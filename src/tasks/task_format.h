#pragma once
// What lm_eval's doc_to_text, doc_to_target, doc_to_choice and gen_prefix give for a row.

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tasks/task_config.h"

namespace athanor::tasks {

class DocFormat {
 public:
  /// @param first  the first document, after process_docs: a key that names one of its fields is that field.
  DocFormat(const TaskConfig& task, const nlohmann::ordered_json& first);

  /// An int (the number of the right input, in a task of several inputs) or a text.
  Value text(const DocRules& rules, const nlohmann::ordered_json& row) const;
  /// An int, a text or a list.
  Value target(const DocRules& rules, const nlohmann::ordered_json& row) const;
  /// @throws DataError for what is no list of texts.
  std::vector<std::string> choices(const DocRules& rules, const nlohmann::ordered_json& row) const;
  bool has_choices(const DocRules& rules) const { return !rules.choice.given.is_null(); }
  /// Empty if there is none.
  std::string prefix(const DocRules& rules, const nlohmann::ordered_json& row) const;
  std::string description(const nlohmann::ordered_json& row) const;

 private:
  bool is_field(const DocRule& rule) const;
  Value field(const nlohmann::ordered_json& row, const std::string& name, const char* key) const;
  void check_spelling(const DocRule& rule, const char* key) const;

  const TaskConfig& task_;
  std::set<std::string> fields_;
};

/// Adds the fields of process_docs to a row. Each template sees the row with the fields that came before it.
void add_fields(const DocRules& rules, nlohmann::ordered_json& row);

}  // namespace athanor::tasks

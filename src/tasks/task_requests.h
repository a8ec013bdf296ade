#pragma once
// Builds the requests of a document: lm_eval's fewshot_context and construct_requests.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tasks/task_document.h"
#include "tasks/task_format.h"

namespace athanor::tasks {

class RequestBuilder {
 public:
  /// @param first  the first document of the task, after process_docs: it decides what kinds of values the keys give.
  RequestBuilder(const TaskConfig& task, const nlohmann::ordered_json& first);

  /// Returns the document with its requests; `task` and `doc_id` are left to the caller.
  /// @throws DataError for a value that does not fit, or an answer that is none of the choices.
  TaskDocument build(nlohmann::ordered_json row, const std::vector<nlohmann::ordered_json>& examples) const;

 private:
  std::string example_text(const nlohmann::ordered_json& row) const;
  std::string answer_text(const Value& answer, const std::vector<std::string>* choices) const;
  void add_choices(TaskDocument& document, const std::string& shared) const;
  void set_gold(TaskDocument& document, const Value& gold, const std::vector<std::string>& choices) const;
  std::string target_text(const Value& target) const;

  const TaskConfig& task_;
  DocFormat format_;
  bool several_inputs_ = false;   ///< choices stand in the context, and the target behind it (winogrande)
  bool several_targets_ = false;  ///< any of several answers is right
};

}  // namespace athanor::tasks

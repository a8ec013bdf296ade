#include "tasks/task_requests.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "tasks/python_repr.h"
#include "tasks/python_text.h"

namespace athanor::tasks {
namespace {

using Json = nlohmann::ordered_json;

bool begins_with_space(std::string_view text) {
  size_t byte = 0;
  return is_python_space(take_character(text, byte));
}

bool ends_with_space(std::string_view text) { return strip(text, Side::kRight).size() != text.size(); }

// lm_eval's maybe_delimit: no delimiter where a space is.
std::string delimit(const std::string& left, const std::string& right, std::string_view delimiter) {
  if (left.empty()) return right;
  if (right.empty()) return left;
  const bool has_space = ends_with_space(left) || begins_with_space(right);
  return left + (has_space ? "" : std::string(delimiter)) + right;
}

std::string shorten(const Value& value) {
  const std::string text = python_repr(value);
  return printable(text.size() > 120 ? text.substr(0, 120) + "..." : text);
}

// The question of a turn, with what stands between it and what follows.
std::string question(const std::string& text, const std::string& prefix, bool has_answer,
                     const std::string& delimiter) {
  if (prefix.empty()) return has_answer ? text + delimiter : text;
  const bool needs_delimiter = !text.empty() && !ends_with_space(text) && !begins_with_space(prefix);
  return needs_delimiter ? text + delimiter : text;
}

}  // namespace

RequestBuilder::RequestBuilder(const TaskConfig& task, const Json& first) : task_(task), format_(task, first) {
  const bool has_choices = format_.has_choices(task.doc);
  several_inputs_ = has_choices && format_.text(task.doc, first).is_integer();
  several_targets_ = format_.target(task.doc, first).is_list();
  if (!several_targets_) return;
  for (const char* metric : {"f1", "mcc", "brier_score"})
    ATHANOR_CHECK(!task.has_metric(metric), "{}: {} needs one right answer, and doc_to_target gives a list", task.where,
                  metric);
}

// The answer of an example as text.
std::string RequestBuilder::answer_text(const Value& answer, const std::vector<std::string>* choices) const {
  Value text = answer;
  if (choices && answer.is_integer()) {
    ATHANOR_CHECK_DATA(answer.integer() >= 0 && answer.integer() < static_cast<int64_t>(choices->size()),
                       "{}: the answer {} is outside of {} choices", task_.where, answer.integer(), choices->size());
    return (*choices)[static_cast<size_t>(answer.integer())];
  }
  if (answer.is_list()) {
    ATHANOR_CHECK_DATA(!answer.sequence().items.empty(), "{}: the answer of an example is an empty list", task_.where);
    text = answer.sequence().items[0];
  }
  ATHANOR_CHECK_DATA(text.is_text(), "{}: the answer of an example is {}, a text is needed", task_.where,
                     shorten(answer));
  return text.text();
}

std::string RequestBuilder::example_text(const Json& row) const {
  const auto& rules = task_.example;
  Value text = format_.text(rules, row);
  std::vector<std::string> choices;
  const bool has_choices = format_.has_choices(rules);
  if (has_choices) choices = format_.choices(rules, row);
  const Value answer = format_.target(rules, row);
  const std::string prefix = format_.prefix(rules, row);
  if (several_inputs_) text = Value::of_text(answer_text(text, &choices));
  ATHANOR_CHECK_DATA(text.is_text(), "{}: doc_to_text of an example gives {}, a text is needed", task_.where,
                     shorten(text));
  // As lm_eval: an answer that is "" or None is none.
  const bool has_answer = !answer.is_none() && !(answer.is_text() && answer.text().empty());
  const std::string begin = question(text.text(), prefix, has_answer, rules.target_delimiter);
  if (!has_answer) return begin + prefix;
  const std::string right = answer_text(answer, has_choices && !several_inputs_ ? &choices : nullptr);
  return begin + delimit(prefix, right, " ") + rules.fewshot_delimiter;
}

std::string RequestBuilder::target_text(const Value& target) const {
  ATHANOR_CHECK_DATA(target.is_text(), "{}: doc_to_target gives {}, a text is needed", task_.where, shorten(target));
  return target.text();
}

void RequestBuilder::set_gold(TaskDocument& document, const Value& gold,
                              const std::vector<std::string>& choices) const {
  const auto take_index = [&](const Value& value) {
    ATHANOR_CHECK_DATA(
        value.is_integer() && value.integer() >= 0 && value.integer() < static_cast<int64_t>(choices.size()),
        "{}: the answer {} is none of the {} choices", task_.where, shorten(value), choices.size());
    document.gold.push_back(value.integer());
  };
  ATHANOR_CHECK_DATA(several_inputs_ || gold.is_list() == several_targets_,
                     "{}: the answer is {}, but that of the first document is {} list", task_.where, shorten(gold),
                     several_targets_ ? "a" : "no");
  if (gold.is_list()) {
    ATHANOR_CHECK_DATA(!gold.sequence().items.empty(), "{}: the list of answers is empty", task_.where);
    for (const auto& item : gold.sequence().items) take_index(item);
  } else if (gold.is_text()) {
    const auto at = std::find(choices.begin(), choices.end(), gold.text());
    ATHANOR_CHECK_DATA(at != choices.end(), "{}: the answer {} is none of the {} choices", task_.where, shorten(gold),
                       choices.size());
    document.gold.push_back(at - choices.begin());
  } else {
    take_index(gold);
  }
}

void RequestBuilder::add_choices(TaskDocument& document, const std::string& shared) const {
  const auto& row = document.row;
  const auto choices = format_.choices(task_.doc, row);
  const Value target = format_.target(task_.doc, row);
  const std::string& delimiter = task_.doc.target_delimiter;
  const std::string prefix = format_.prefix(task_.doc, row);
  const Value text = format_.text(task_.doc, row);
  for (const auto& choice : choices) {
    document.choice_characters.push_back(num_characters(choice));
    document.choice_bytes.push_back(static_cast<int64_t>(choice.size()));
    if (several_inputs_) {
      document.requests.push_back(
          {shared + question(choice, prefix, false, "") + prefix, delimiter + python_str(target)});
    } else {
      ATHANOR_CHECK_DATA(text.is_text(), "{}: doc_to_text gives {}, but a text for the first document", task_.where,
                         shorten(text));
      document.requests.push_back(
          {shared + question(text.text(), prefix, false, delimiter) + prefix, delimiter + choice});
    }
  }
  if (task_.has_metric("acc_mutual_info"))
    for (const auto& choice : choices) document.requests.push_back({"", delimiter + choice});
  set_gold(document, several_inputs_ ? text : target, choices);
}

TaskDocument RequestBuilder::build(Json row, const std::vector<Json>& examples) const {
  TaskDocument document;
  document.row = std::move(row);
  const Value target = format_.target(task_.doc, document.row);
  document.target = to_json(target);
  if (task_.output_type == OutputType::kRolling) {
    const std::string text = target_text(target);
    document.num_words = count_words(text);
    document.num_bytes = static_cast<int64_t>(text.size());
    document.requests.push_back({"", text, true});
    return document;
  }
  std::string shared = format_.description(document.row);
  for (const auto& example : examples) shared += example_text(example);
  if (task_.output_type == OutputType::kMultipleChoice) {
    add_choices(document, shared);
    return document;
  }
  const Value text = format_.text(task_.doc, document.row);
  ATHANOR_CHECK_DATA(text.is_text(), "{}: doc_to_text gives {}, a text is needed", task_.where, shorten(text));
  const std::string prefix = format_.prefix(task_.doc, document.row);
  document.requests.push_back(
      {shared + question(text.text(), prefix, false, task_.doc.target_delimiter) + prefix, target_text(target)});
  return document;
}

}  // namespace athanor::tasks

#include "tasks/task_format.h"

#include <fmt/core.h>

#include "base/error.h"
#include "base/text.h"
#include "tasks/python_literal.h"
#include "tasks/python_repr.h"
#include "tasks/python_text.h"

namespace athanor::tasks {
namespace {

using Json = nlohmann::ordered_json;

std::string fields_of(const Json& row) {
  std::vector<std::string> names;
  for (const auto& [name, value] : row.items()) names.push_back(printable(name));
  return names.empty() ? "the row is empty" : "the row has " + join_first(names, 20);
}

Value literal_of(const TaskConfig& task, const char* key, const std::string& text) {
  std::string reason = "no Python literal";
  try {
    if (auto value = read_literal(text)) return *value;
  } catch (const PythonError& error) {
    reason = error.what();
  }
  fail<DataError>("{}: {} gives {}, where a list or a number is needed ({})", task.where, key,
                  printable(text.size() > 120 ? text.substr(0, 120) + "..." : text), reason);
}

}  // namespace

DocFormat::DocFormat(const TaskConfig& task, const Json& first) : task_(task) {
  for (const auto& [name, value] : first.items()) fields_.insert(name);
  check_spelling(task.doc.text, "doc_to_text");
  check_spelling(task.doc.target, "doc_to_target");
  check_spelling(task.doc.choice, "doc_to_choice");
}

// lm_eval takes a misspelled name of a field for a text, which every document would get.
void DocFormat::check_spelling(const DocRule& rule, const char* key) const {
  if (!rule.given.is_string() || is_field(rule)) return;
  const auto& text = rule.given.get_ref<const std::string&>();
  if (text.size() < 3 || text.find_first_of(" {}\n\t[]'\"") != std::string::npos) return;
  const std::vector<std::string> names(fields_.begin(), fields_.end());
  if (const auto nearest = nearest_name(text, names))
    fail<DataError>("{}: {} is \"{}\", which is no field of the rows (did you mean \"{}\"?)", task_.where, key,
                    printable(text), *nearest);
}

bool DocFormat::is_field(const DocRule& rule) const {
  return rule.given.is_string() && fields_.count(rule.given.get_ref<const std::string&>());
}

Value DocFormat::field(const Json& row, const std::string& name, const char* key) const {
  const auto found = row.find(name);
  if (found == row.end())
    fail<DataError>("{}: {} is the field \"{}\", which is not there; {}", task_.where, key, printable(name),
                    fields_of(row));
  try {
    return Value::of_json(*found);
  } catch (const PythonError& error) {
    fail<DataError>("{}: {}: {}", task_.where, key, error.what());
  }
}

Value DocFormat::text(const DocRules& rules, const Json& row) const {
  const auto& rule = rules.text;
  if (rule.given.is_number()) return Value::of_int(rule.given.get<int64_t>());
  if (is_field(rule)) return field(row, rule.given, "doc_to_text");
  std::string text = rule.compiled->render(row);
  if (is_digits(text) && !task_.doc.choice.given.is_null()) return literal_of(task_, "doc_to_text", text);
  return Value::of_text(std::move(text));
}

Value DocFormat::target(const DocRules& rules, const Json& row) const {
  const auto& rule = rules.target;
  if (rule.given.is_number()) return Value::of_int(rule.given.get<int64_t>());
  if (rule.given.is_array()) return Value::of_json(rule.given);
  if (is_field(rule)) return field(row, rule.given, "doc_to_target");
  std::string text = rule.compiled->render(row);
  if (is_digits(text) && !task_.doc.choice.given.is_null()) return literal_of(task_, "doc_to_target", text);
  if (text.size() >= 2 && text.front() == '[' && text.back() == ']') {
    try {
      if (auto value = read_literal(text)) return *value;
    } catch (const PythonError& error) {
      fail<DataError>("{}: doc_to_target: {}", task_.where, error.what());
    }
  }
  return Value::of_text(std::move(text));
}

std::vector<std::string> DocFormat::choices(const DocRules& rules, const Json& row) const {
  const auto& rule = rules.choice;
  Value value;
  if (rule.given.is_array()) {
    value = Value::of_json(rule.given);
  } else if (rule.given.is_object()) {
    Items items;
    for (const auto& member : rule.given) items.push_back(Value::of_json(member));
    value = Value::of_list(std::move(items));
  } else if (is_field(rule)) {
    value = field(row, rule.given, "doc_to_choice");
  } else {
    value = literal_of(task_, "doc_to_choice", rule.compiled->render(row));
  }
  const auto shown = [](const Value& any) {
    const std::string text = python_repr(any);
    return printable(text.size() > 120 ? text.substr(0, 120) + "..." : text);
  };
  ATHANOR_CHECK_DATA(value.is_list() && !value.sequence().items.empty(),
                     "{}: doc_to_choice gives {}, a list of texts is needed", task_.where, shown(value));
  std::vector<std::string> choices;
  for (const auto& item : value.sequence().items) {
    ATHANOR_CHECK_DATA(item.is_text(), "{}: doc_to_choice gives a list with {}, a list of texts is needed", task_.where,
                       shown(item));
    choices.push_back(item.text());
  }
  return choices;
}

std::string DocFormat::prefix(const DocRules& rules, const Json& row) const {
  if (rules.prefix.given.is_null()) return "";
  if (!is_field(rules.prefix)) return rules.prefix.compiled->render(row);
  const Value value = field(row, rules.prefix.given, "gen_prefix");
  ATHANOR_CHECK_DATA(value.is_text() || value.is_none(), "{}: gen_prefix is a {}, a text is needed", task_.where,
                     value.type_name());
  return value.is_text() ? value.text() : "";
}

std::string DocFormat::description(const Json& row) const {
  const auto& rule = task_.description;
  if (rule.given.is_null()) return "";
  if (!row.contains(rule.given.get_ref<const std::string&>())) return rule.compiled->render(row);
  const Value value = field(row, rule.given, "description");
  ATHANOR_CHECK_DATA(value.is_text(), "{}: description is a {}, a text is needed", task_.where, value.type_name());
  return value.text();
}

void add_fields(const DocRules& rules, Json& row) {
  if (rules.added_fields.empty()) return;
  for (const auto& [name, source] : rules.added_fields) {
    const Value value = source.evaluate(row);
    try {
      row[name] = to_json(value.is_sequence() && !value.is_list() ? Value::of_list(iterate(value)) : value);
    } catch (const PythonError& error) {
      fail<DataError>("{}: {}", source.what(), error.what());
    }
  }
}

}  // namespace athanor::tasks

#include "tasks/key_reader.h"

#include <algorithm>

#include "base/text.h"

namespace athanor::tasks {

std::string describe_json(const nlohmann::ordered_json& value) {
  if (value.is_array()) return "a list";
  if (value.is_object()) return "a mapping";
  if (value.is_null()) return "null";
  const auto shown = value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  return (value.is_string()    ? "the text "
          : value.is_boolean() ? ""
                               : "the number ") +
         (shown.size() > 80 ? shown.substr(0, 80) + "..." : shown);
}

std::string KeySource::place(const std::string& key) const {
  const auto found = lines.find(key);
  return found == lines.end() ? fmt::format("{}: {}", file.string(), key)
                              : fmt::format("{}:{}: {}", found->second.first, found->second.second, key);
}

void KeyReader::check_names(const std::vector<std::string>& names) const {
  for (const auto& [key, value] : keys_.items()) {
    if (std::find(names.begin(), names.end(), key) != names.end()) continue;
    complain(printable(key), "is an unknown key{}", did_you_mean(key, names));
  }
}

const nlohmann::ordered_json* KeyReader::find(const std::string& key) const {
  const auto found = keys_.find(key);
  return found == keys_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<std::string> KeyReader::text(const std::string& key) const {
  const auto* value = find(key);
  if (!value) return std::nullopt;
  refuse_function(key);
  if (!value->is_string()) complain(key, "is {}, a text is needed", describe_json(*value));
  return value->get<std::string>();
}

std::optional<int64_t> KeyReader::count(const std::string& key) const {
  const auto* value = find(key);
  if (!value) return std::nullopt;
  if (!value->is_number_integer() || value->get<int64_t>() < 0)
    complain(key, "is {}, a number from 0 on is needed", describe_json(*value));
  return value->get<int64_t>();
}

std::optional<double> KeyReader::number(const std::string& key) const {
  const auto* value = find(key);
  if (!value) return std::nullopt;
  if (!value->is_number()) complain(key, "is {}, a number is needed", describe_json(*value));
  return value->get<double>();
}

bool KeyReader::flag(const std::string& key, bool otherwise) const {
  const auto* value = find(key);
  if (!value) return otherwise;
  if (!value->is_boolean()) complain(key, "is {}, true or false is needed", describe_json(*value));
  return value->get<bool>();
}

void KeyReader::refuse_function(const std::string& key) const {
  const auto* value = find(key);
  if (!value || !value->is_object() || !value->contains("!function")) return;
  const std::string function = value->at("!function").is_string() ? value->at("!function").get<std::string>() : "";
  if (key == "process_docs") {
    complain(
        key,
        "is the Python function {}; write instead a mapping of fields to templates, such as `process_docs: {{query: "
        "\"{{{{ctx.strip()}}}}\"}}` (docs/tasks.md)",
        function);
  }
  if (key == "samples") complain(key, "is the Python function {}; write the list of samples itself", function);
  complain(key,
           "is the Python function {}; write a template that gives the same, such as \"{{{{question.strip()}}}}\" "
           "(docs/tasks.md)",
           function);
}

}  // namespace athanor::tasks

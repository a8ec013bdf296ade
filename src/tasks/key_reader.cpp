#include "tasks/key_reader.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/text.h"

namespace athanor::tasks {
namespace {

constexpr std::string_view kTemplate = "write a template that gives the same, such as \"{{question.strip()}}\"";

// What serves in the place of a function, by the key that names it.
constexpr std::pair<std::string_view, std::string_view> kInsteadOfFunction[] = {
    {"process_docs",
     "write instead a mapping of fields to templates, such as `process_docs: {query: \"{{ctx.strip()}}\"}`"},
    {"samples", "write the list of samples itself"},
    {"metric", "code that scores cannot run here: name a metric, such as acc"},
    {"aggregation",
     "code that aggregates scores cannot run here: leave the key out for the metric's own aggregation, or name another "
     "metric, such as f1"},
    {"process_results", "code that scores cannot run here: name metrics in metric_list"},
    {"filter_list", "code that filters cannot run here, and scores have no text to filter: leave the key out"},
    {"class", "tasks that are classes cannot run here: write the task as keys"},
    {"custom_dataset", "write the rows that it gives to a file, and the file's name under athanor.data"},
    {"doc_to_image", "a model that sees is needed: leave the task out"},
    {"doc_to_audio", "a model that hears is needed: leave the task out"},
    {"sampler", "there are the samplers default and first_n"}};

// Returns the name of the first function in a value.
std::optional<std::string> function_in(const nlohmann::ordered_json& value) {
  if (!value.is_structured()) return std::nullopt;
  if (value.is_object() && value.contains("!function")) {
    const auto& name = value["!function"];
    return name.is_string() ? name.get<std::string>() : "";
  }
  for (const auto& member : value) {
    if (auto found = function_in(member)) return found;
  }
  return std::nullopt;
}

}  // namespace

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
  const auto function = value ? function_in(*value) : std::nullopt;
  if (!function) return;
  const auto known = std::find_if(std::begin(kInsteadOfFunction), std::end(kInsteadOfFunction),
                                  [&](const auto& entry) { return entry.first == key; });
  const bool is_template = key.starts_with("doc_to_") || key == "description" || key == "gen_prefix";
  const std::string_view instead = known != std::end(kInsteadOfFunction) ? known->second
                                   : is_template                         ? kTemplate
                                                                         : "write the value itself";
  complain(key, "{} the Python function {}; {} (docs/tasks.md)", value->contains("!function") ? "is" : "has", *function,
           instead);
}

}  // namespace athanor::tasks

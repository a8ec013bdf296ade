#include "documents/json_fields.h"

#include <simdjson.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

namespace athanor {
namespace {

using nlohmann::json;
namespace ondemand = simdjson::ondemand;

bool is_wanted(const std::vector<std::string>& names, std::string_view name) {
  return std::binary_search(names.begin(), names.end(), name, std::less<>());
}

// Skips the other members without examining them. Returns none for a row that only the complete parser reads.
std::optional<json> skim_fields(std::string_view row, const std::vector<std::string>& names) {
  const simdjson::padded_string padded(row);
  ondemand::parser parser;
  ondemand::document document;
  ondemand::object members;
  if (parser.iterate(padded).get(document) || document.get_object().get(members)) return std::nullopt;
  json object = json::object();
  for (auto found : members) {
    ondemand::field member;
    std::string_view name, value;
    if (std::move(found).get(member) || member.unescaped_key().get(name)) return std::nullopt;
    if (!is_wanted(names, name)) continue;
    const std::string key(name);
    if (simdjson::to_json_string(member.value()).get(value)) return std::nullopt;
    object[key] = json::parse(value);
  }
  return object;
}

json parse_fields(std::string_view row, const std::vector<std::string>& names) {
  const auto wanted = [&](int depth, json::parse_event_t event, json& parsed) {
    return depth != 1 || event != json::parse_event_t::key || is_wanted(names, parsed.get_ref<const std::string&>());
  };
  auto object = json::parse(row, wanted);
  return object.is_object() ? object : json::object();
}

}  // namespace

json read_json_fields(std::string_view row, const std::vector<std::string>& names) {
  auto object = skim_fields(row, names);
  return object ? std::move(*object) : parse_fields(row, names);
}

}  // namespace athanor

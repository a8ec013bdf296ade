#include "documents/json_fields.h"

#include <simdjson.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/bounded_json.h"
#include "base/error.h"

namespace athanor::inline documents {
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
    auto parsed = read_json(value);
    if (parsed.is_discarded()) return std::nullopt;
    object[key] = std::move(parsed);
  }
  return object;
}

json parse_fields(std::string_view row, const std::vector<std::string>& names) {
  JsonFault fault;
  const json all = read_json(row, &fault);
  if (all.is_discarded()) throw DataError(fault.reason);
  auto object = json::object();
  if (!all.is_object()) return object;
  for (const auto& name : names)
    if (const auto found = all.find(name); found != all.end()) object[name] = *found;
  return object;
}

}  // namespace

json read_json_fields(std::string_view row, const std::vector<std::string>& names) {
  auto object = skim_fields(row, names);
  return object ? std::move(*object) : parse_fields(row, names);
}

}  // namespace athanor::inline documents

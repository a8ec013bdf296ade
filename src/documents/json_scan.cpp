#include "documents/json_scan.h"

#include <simdjson.h>

namespace athanor {

std::optional<std::string> scan_json_text(std::string_view json, std::string_view field) {
  // A parser keeps memory for the largest row that it has seen, so each row gets a parser for itself. simdjson's
  // On-Demand interface would be faster, but it does not check the values that are skipped.
  simdjson::dom::parser parser;
  simdjson::dom::object object;
  if (parser.parse(json.data(), json.size()).get(object) != simdjson::SUCCESS) return std::nullopt;
  std::string_view text;
  int times = 0;
  for (const auto member : object) {
    if (member.key != field) continue;
    if (member.value.get(text) != simdjson::SUCCESS) return std::nullopt;
    ++times;
  }
  return times == 1 ? std::optional<std::string>(text) : std::nullopt;
}

}  // namespace athanor

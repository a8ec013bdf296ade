#include "documents/json_scan.h"

#include <simdjson.h>

#include "documents/field_path.h"

namespace athanor::inline documents {
namespace {

namespace dom = simdjson::dom;

// Finds what the object has under `path`, from the name at `from` on. `times`: how often the field is there, 2 or more
// also if a name on the way to it is repeated.
bool find_field(const dom::object& object, const FieldPath& path, size_t from, int& times, dom::element& found) {
  times = 0;
  for (const auto member : object) {
    if (member.key != path[from]) continue;
    found = member.value;
    ++times;
  }
  if (times != 1 || from + 1 == path.size()) return times == 1;
  dom::object inner;
  return found.get(inner) == simdjson::SUCCESS && find_field(inner, path, from + 1, times, found);
}

}  // namespace

std::optional<std::string> scan_json_text(std::string_view json, std::string_view field) {
  // A parser keeps memory for the largest row that it has seen, so each row gets a parser for itself. simdjson's
  // On-Demand interface would be faster, but it does not check the values that are skipped.
  dom::parser parser;
  dom::object object;
  if (parser.parse(json.data(), json.size()).get(object) != simdjson::SUCCESS) return std::nullopt;
  for (const auto& path : paths_of_field(field)) {
    int times = 0;
    dom::element found;
    std::string_view text;
    if (find_field(object, path, 0, times, found))
      return found.get(text) == simdjson::SUCCESS ? std::optional<std::string>(text) : std::nullopt;
    if (times > 0) return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace athanor::inline documents

#include "checkpoint/strict_json.h"

#include <limits>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/json_events.h"

namespace athanor::inline checkpoint {
namespace {

using Json = nlohmann::json;

std::optional<int64_t> as_size(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return static_cast<int64_t>(number);
  }
  return std::nullopt;
}

}  // namespace

std::string shown_text(std::string_view text) {
  constexpr size_t kMost = 100;
  return printable(text.substr(0, kMost)) + (text.size() > kMost ? "..." : "");
}

Json parse_strict_json(std::string_view text, const std::string& where, uint64_t first_byte) {
  JsonEvents events(where, first_byte, nullptr);
  Json::sax_parse(text.begin(), text.end(), &events);
  return events.take_whole();
}

const Json& json_member(const Json& object, const char* key, const std::string& where) {
  ATHANOR_CHECK_CHECKPOINT(object.is_object(), "{}: expected an object with \"{}\", found {}", where, key,
                           object.type_name());
  const auto found = object.find(key);
  ATHANOR_CHECK_CHECKPOINT(found != object.end(), "{}: \"{}\" is missing", where, key);
  return *found;
}

std::string json_string(const Json& object, const char* key, const std::string& where) {
  const auto& value = json_member(object, key, where);
  ATHANOR_CHECK_CHECKPOINT(value.is_string(), "{}: \"{}\" must be a string, found {}", where, key, value.type_name());
  return value.get<std::string>();
}

int64_t json_size(const Json& object, const char* key, const std::string& where) {
  return as_json_size(json_member(object, key, where), key, where);
}

int64_t as_json_size(const Json& value, std::string_view name, const std::string& where) {
  const auto size = as_size(value);
  ATHANOR_CHECK_CHECKPOINT(size.has_value(), "{}: \"{}\" must be a whole number from 0 to 2^63-1", where, name);
  return *size;
}

std::vector<int64_t> as_json_sizes(const Json& value, std::string_view name, const std::string& where) {
  ATHANOR_CHECK_CHECKPOINT(value.is_array(), "{}: \"{}\" must be a list of whole numbers", where, name);
  std::vector<int64_t> sizes;
  sizes.reserve(value.size());
  for (const auto& item : value) {
    const auto size = as_size(item);
    ATHANOR_CHECK_CHECKPOINT(size.has_value(), "{}: \"{}\" must hold whole numbers from 0 to 2^63-1", where, name);
    sizes.push_back(*size);
  }
  return sizes;
}

}  // namespace athanor::inline checkpoint

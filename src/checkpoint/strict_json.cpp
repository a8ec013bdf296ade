#include "checkpoint/strict_json.h"

#include <limits>
#include <optional>
#include <unordered_set>

#include "base/error.h"

namespace athanor {
namespace {

using Json = nlohmann::json;

constexpr int kMaxDepth = 64;  // ours are at most 5 deep; a bound keeps every later walk over the tree bounded too

std::optional<int64_t> as_size(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return static_cast<int64_t>(number);
  }
  return std::nullopt;
}

}  // namespace

Json parse_strict_json(std::string_view text, const std::string& where, uint64_t first_byte) {
  std::vector<std::unordered_set<std::string>> open_objects;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    ATHANOR_CHECK_CHECKPOINT(depth <= kMaxDepth, "{}: JSON is nested deeper than {} levels", where, kMaxDepth);
    if (event == Json::parse_event_t::object_start) open_objects.emplace_back();
    if (event == Json::parse_event_t::object_end) open_objects.pop_back();
    if (event == Json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      ATHANOR_CHECK_CHECKPOINT(open_objects.back().insert(key).second, "{}: the key \"{}\" stands twice", where, key);
    }
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), watch);
  } catch (const Json::parse_error& error) {
    fail<CheckpointError>("{}: not valid JSON at byte {}", where, first_byte + (error.byte > 0 ? error.byte - 1 : 0));
  } catch (const Json::exception&) {
    fail<CheckpointError>("{}: JSON holds a number that is out of range", where);
  }
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
  const auto size = as_size(json_member(object, key, where));
  ATHANOR_CHECK_CHECKPOINT(size.has_value(), "{}: \"{}\" must be a whole number from 0 to 2^63-1", where, key);
  return *size;
}

std::vector<int64_t> json_sizes(const Json& object, const char* key, const std::string& where) {
  const auto& value = json_member(object, key, where);
  ATHANOR_CHECK_CHECKPOINT(value.is_array(), "{}: \"{}\" must be a list of whole numbers", where, key);
  std::vector<int64_t> sizes;
  sizes.reserve(value.size());
  for (const auto& item : value) {
    const auto size = as_size(item);
    ATHANOR_CHECK_CHECKPOINT(size.has_value(), "{}: \"{}\" must hold whole numbers from 0 to 2^63-1", where, key);
    sizes.push_back(*size);
  }
  return sizes;
}

}  // namespace athanor

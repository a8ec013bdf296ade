#pragma once
// Reads typed members of a JSON object from an outside source, and collects all of its errors.

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace athanor::inline checkpoint {

/// The largest size or token id that is accepted: no model has larger ones.
inline constexpr int64_t kMaxSize = int64_t{1} << 31;

/// Returns what an exception of the JSON library reports, without the number that it begins with.
inline std::string json_reason(const nlohmann::json::exception& error) {
  const std::string text = error.what();
  const size_t end = text.find("] ");
  return text.starts_with('[') && end != text.npos ? text.substr(end + 2) : text;
}

/// Reads members of one object and collects their errors. A member that is null counts as absent. Functions with a
/// `fallback` return it if the member is absent, and also, after adding a problem, if its value is wrong. Object and
/// problems must outlive this.
class JsonMembers {
 public:
  JsonMembers(const nlohmann::json& object, std::vector<std::string>& problems)
      : object_(object), problems_(problems) {}

  const nlohmann::json* find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  /// Returns a whole number from `low` to kMaxSize.
  int64_t size(const char* key, int64_t fallback, int64_t low = 1) {
    const auto* value = find(key);
    if (!value) return fallback;
    if (value->is_number_integer() && *value >= low && *value <= kMaxSize) return value->get<int64_t>();
    complain(key, *value, fmt::format("a whole number from {} to {}", low, kMaxSize));
    return fallback;
  }
  /// Returns a number that is not negative.
  double number(const char* key, double fallback) {
    const auto* value = find(key);
    if (!value) return fallback;
    if (value->is_number() && value->get<double>() >= 0) return value->get<double>();
    complain(key, *value, "a number, 0 or more");
    return fallback;
  }
  bool boolean(const char* key, bool fallback) {
    const auto* value = find(key);
    if (!value) return fallback;
    if (value->is_boolean()) return value->get<bool>();
    complain(key, *value, "true or false");
    return fallback;
  }
  /// Adds a problem if the option has any value except the one that we compute.
  void only(const char* key, const nlohmann::json& supported) {
    const auto* value = find(key);
    if (value && *value != supported) {
      problems_.push_back(fmt::format("{} = {} is not supported, only {}", key, shown(*value), supported.dump()));
    }
  }
  /// Adds a problem if the option has any value.
  void absent(const char* key) {
    if (const auto* value = find(key)) problems_.push_back(fmt::format("{} = {} is not supported", key, shown(*value)));
  }
  /// Returns a list of indices, such as layer numbers; empty if the member is absent.
  std::vector<int64_t> indices(const char* key) {
    const auto* value = find(key);
    if (!value) return {};
    const auto is_index = [](const nlohmann::json& x) { return x.is_number_integer() && x >= 0 && x <= kMaxSize; };
    if (value->is_array() && std::all_of(value->begin(), value->end(), is_index)) {
      return value->get<std::vector<int64_t>>();
    }
    complain(key, *value, "a list of whole numbers");
    return {};
  }
  /// Returns a token id; `fallback` if there is no such member; none if it is null, negative or wrong.
  std::optional<int64_t> token_id(const char* key, std::optional<int64_t> fallback) {
    const auto ids = token_ids(key, fallback ? std::vector<int64_t>{*fallback} : std::vector<int64_t>());
    if (ids.size() < 2) return ids.empty() ? std::nullopt : std::optional(ids.front());
    complain(key, *find(key), "one token id");
    return std::nullopt;
  }
  /// Returns token ids: of a number or a list of numbers, without the negative ones; `fallback` if there is no such
  /// member.
  std::vector<int64_t> token_ids(const char* key, std::vector<int64_t> fallback) {
    if (!object_.contains(key)) return fallback;
    const auto* value = find(key);
    if (!value) return {};
    std::vector<int64_t> ids;
    for (const auto& id : value->is_array() ? *value : nlohmann::json::array({*value})) {
      if (!id.is_number_integer() || id > kMaxSize) {
        complain(key, *value, "a token id or a list of them");
        return {};
      }
      if (id >= 0) ids.push_back(id.get<int64_t>());
    }
    return ids;
  }

  /// Adds the problem "KEY is VALUE, expected EXPECTED".
  void complain(const char* key, const nlohmann::json& value, const std::string& expected) {
    problems_.push_back(fmt::format("{} is {}, expected {}", key, shown(value), expected));
  }

  /// Returns at most 80 bytes of the value's text, for messages.
  static std::string shown(const nlohmann::json& value) {
    auto text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    return text.size() > 80 ? text.substr(0, 80) + "..." : text;
  }

 private:
  const nlohmann::json& object_;
  std::vector<std::string>& problems_;
};

}  // namespace athanor::inline checkpoint

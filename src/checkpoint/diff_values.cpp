#include "checkpoint/diff_values.h"

#include <algorithm>
#include <set>

#include "checkpoint/json_members.h"
#include "config/changes.h"

namespace athanor::inline checkpoint {
namespace {

using Json = nlohmann::json;

constexpr const char* kConfigPath = "state.config";

void diff_json(const std::string& path, const Json& a, const Json& b, std::vector<ValueDifference>& found);

/// Compares a member or an item that only one side may have: then the other is null here.
void diff_either(const std::string& path, const Json* a, const Json* b, std::vector<ValueDifference>& found) {
  if (a && b) return diff_json(path, *a, *b, found);
  found.push_back({path, a ? JsonMembers::shown(*a) : "absent", b ? JsonMembers::shown(*b) : "absent"});
}

void diff_configs(const std::string& a, const std::string& b, std::vector<ValueDifference>& found) {
  for (const auto& each : config_text_differences(a, b))
    found.push_back({kConfigPath + (": " + each.name), each.a, each.b});
}

void diff_json(const std::string& path, const Json& a, const Json& b, std::vector<ValueDifference>& found) {
  if (path == kConfigPath && a.is_string() && b.is_string()) {
    diff_configs(a.get_ref<const std::string&>(), b.get_ref<const std::string&>(), found);
  } else if (a.is_object() && b.is_object()) {
    std::set<std::string> keys;
    for (const Json* side : {&a, &b})
      for (const auto& [key, value] : side->items()) keys.insert(key);
    for (const auto& key : keys) {
      const auto in_a = a.find(key), in_b = b.find(key);
      diff_either(path + "." + key, in_a == a.end() ? nullptr : &*in_a, in_b == b.end() ? nullptr : &*in_b, found);
    }
  } else if (a.is_array() && b.is_array()) {
    for (size_t i = 0; i < std::max(a.size(), b.size()); ++i)
      diff_either(fmt::format("{}[{}]", path, i), i < a.size() ? &a[i] : nullptr, i < b.size() ? &b[i] : nullptr,
                  found);
  } else if (a.type() != b.type() || a.dump() != b.dump()) {  // as text: 0.0 and -0.0 are equal as numbers
    found.push_back({path, JsonMembers::shown(a), JsonMembers::shown(b)});
  }
}

}  // namespace

std::vector<ValueDifference> diff_values(const Manifest& a, const Manifest& b) {
  std::vector<ValueDifference> found;
  diff_json("model", a.model, b.model, found);
  diff_json("state", a.state, b.state, found);
  return found;
}

}  // namespace athanor::inline checkpoint

#include "base/text_template_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace athanor {
namespace {

constexpr size_t kMaxTokens = 1024;  // far beyond any template

std::optional<std::vector<uint32_t>> ids_at(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_array() || found->size() > kMaxTokens) return std::nullopt;
  const auto is_id = [](const nlohmann::json& id) { return id.is_number_integer() && id >= 0 && id <= INT32_MAX; };
  if (!std::all_of(found->begin(), found->end(), is_id)) return std::nullopt;
  return found->get<std::vector<uint32_t>>();
}

}  // namespace

nlohmann::json text_template_json(const TextTemplate& tokens) {
  return {{"before", tokens.before}, {"after", tokens.after}};
}

std::optional<TextTemplate> parse_text_template(const nlohmann::json& json) {
  if (!json.is_object()) return std::nullopt;
  auto before = ids_at(json, "before"), after = ids_at(json, "after");
  if (!before || !after) return std::nullopt;
  return TextTemplate{std::move(*before), std::move(*after)};
}

}  // namespace athanor

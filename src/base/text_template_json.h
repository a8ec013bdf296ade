#pragma once
// Text templates as manifests of data, checkpoints and model folders have them.

#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "base/text_template.h"

namespace athanor {

/// The name of the member. Without it there is nothing around a text.
inline constexpr const char* kTextTemplateKey = "text_template";

/// Writes and reads {"before": [1], "after": []}. Reading returns nothing if `json` has not this form.
nlohmann::json text_template_json(const TextTemplate& tokens);
std::optional<TextTemplate> parse_text_template(const nlohmann::json& json);

}  // namespace athanor

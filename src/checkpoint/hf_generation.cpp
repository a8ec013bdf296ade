#include "checkpoint/hf_generation.h"

#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "checkpoint/json_members.h"
#include "checkpoint/strict_json.h"

namespace athanor::inline checkpoint {
namespace {

// Members that do not change the text, or that --max-new-tokens stands for.
const std::set<std::string> kTextStaysTheSame = {
    "_from_model_config",      "assistant_token_id",   "bos_token_id",
    "cache_implementation",    "eos_token_id",         "max_length",
    "max_new_tokens",          "output_attentions",    "output_hidden_states",
    "output_logits",           "output_scores",        "pad_token_id",
    "return_dict_in_generate", "transformers_version", "use_cache"};

}  // namespace

HfGeneration parse_hf_generation(std::string_view text, const std::string& where) {
  const auto json = parse_strict_json(text, where);
  ATHANOR_CHECK_CHECKPOINT(json.is_object(), "{}: must be an object", where);
  HfGeneration generation;
  generation.text = text;
  std::vector<std::string> problems;
  generation.eos_token_ids = JsonMembers(json, problems).token_ids("eos_token_id", {});
  ATHANOR_CHECK_CHECKPOINT(problems.empty(), "{}: {}", where, join(problems, "; "));
  for (const auto& [key, value] : json.items()) {
    if (value.is_null() || kTextStaysTheSame.contains(key)) continue;
    generation.settings.push_back(fmt::format("{} = {}", shown_text(key), JsonMembers::shown(value)));
  }
  return generation;
}

HfGeneration read_hf_generation(const std::filesystem::path& folder) {
  const auto file = folder / kHfGenerationName;
  if (!std::filesystem::is_regular_file(file)) return {};
  return parse_hf_generation(read_file(file), file.string());
}

}  // namespace athanor::inline checkpoint

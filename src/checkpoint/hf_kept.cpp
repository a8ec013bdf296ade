#include "checkpoint/hf_kept.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "checkpoint/hf_members.h"
#include "checkpoint/json_members.h"
#include "checkpoint/strict_json.h"

namespace athanor::inline checkpoint {

void keep_hf_settings(const HfConfig& config, const std::filesystem::path& run_folder) {
  nlohmann::json ids = nlohmann::json::object();
  if (config.bos_token_id) ids["bos_token_id"] = *config.bos_token_id;
  if (config.pad_token_id) ids["pad_token_id"] = *config.pad_token_id;
  if (!config.eos_token_ids.empty()) ids["eos_token_id"] = config.eos_token_ids;
  if (!config.dropouts.empty()) ids["dropouts"] = config.dropouts;
  if (config.upcasts_attention) ids[kUpcastsAttention] = true;
  write_file_atomically(run_folder / kKeptTokensName, ids.dump(2) + "\n");
  if (!config.generation.text.empty()) write_file_atomically(run_folder / kHfGenerationName, config.generation.text);
}

void add_kept_settings(const std::filesystem::path& run_folder, HfConfig& config) {
  config.generation = read_hf_generation(run_folder);
  const auto file = run_folder / kKeptTokensName;
  if (!std::filesystem::exists(file)) return;
  const auto json = parse_strict_json(read_file(file), file.string());
  ATHANOR_CHECK_CHECKPOINT(json.is_object(), "{}: must be an object", file.string());
  std::vector<std::string> problems;
  JsonMembers members(json, problems);
  config.bos_token_id = members.token_id("bos_token_id", {});
  config.pad_token_id = members.token_id("pad_token_id", {});
  config.upcasts_attention = members.boolean(kUpcastsAttention, false);
  auto ends = members.token_ids("eos_token_id", {});
  if (const auto* dropouts = members.find("dropouts")) {
    ATHANOR_CHECK_CHECKPOINT(dropouts->is_object(), "{}: dropouts must be an object", file.string());
    config.dropouts = read_dropouts(*dropouts, problems);
  }
  ATHANOR_CHECK_CHECKPOINT(problems.empty(), "{}: {}", file.string(), join(problems, "; "));
  const auto own = config.eos_token_id();
  if (!own || std::ranges::find(ends, *own) != ends.end()) config.eos_token_ids = std::move(ends);
}

}  // namespace athanor::inline checkpoint

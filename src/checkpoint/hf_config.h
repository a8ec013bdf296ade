#pragma once
// Reads config.json of `transformers` folders into our model configuration, and writes it from that.
//
// Versions 4 and 5 of transformers differ: `rope_theta` and `torch_dtype` became `rope_parameters` and `dtype`. We read
// both forms, and both versions can read what we write.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/dtype.h"
#include "checkpoint/hf_generation.h"
#include "checkpoint/router_rows.h"
#include "config/model_config.h"

namespace athanor::inline checkpoint {

struct HfConfig {
  ModelConfig model;
  std::optional<int64_t> bos_token_id, pad_token_id;
  std::vector<int64_t> eos_token_ids;  ///< each ends a text; documents end with the first
  HfGeneration generation;             ///< that of the same folder; empty if only config.json was read
  /// Members of config.json that are neither read nor known to be without effect, as "key = value".
  std::vector<std::string> unknown_members;
  double router_aux_loss_coef = 0.01;
  RouterRows router_bias;  ///< router bias of a run; config.json has no place for it, so only zeros can be exported

  std::optional<int64_t> eos_token_id() const {
    return eos_token_ids.empty() ? std::nullopt : std::optional(eos_token_ids.front());
  }
};

/// Reads config.json, from its text (`where` names it in messages) or from the file `path`. Absent members have the
/// defaults of the family's class in `transformers`.
/// @throws CheckpointError that names everything at once: members that are needed (model_type), of a wrong type or
/// impossible, and every option that we do not compute (attention_bias, a sliding window, hidden_act other than silu,
/// ...); IoError if the file cannot be read.
HfConfig parse_hf_config(std::string_view text, const std::string& where);
HfConfig read_hf_config(const std::filesystem::path& path);

/// Warns of members of config.json that are not known. To be called once for a folder.
void warn_of_unknown_members(const HfConfig& config, const std::filesystem::path& folder);

/// Returns the text of config.json for weights stored as `dtype` (F32 or BF16). @throws ConfigError for an unknown
/// family.
std::string hf_config_text(const HfConfig& config, Dtype dtype);

}  // namespace athanor::inline checkpoint

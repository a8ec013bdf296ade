#pragma once
// Reads config.json of `transformers` folders into our model configuration, and writes it from that. It also reads
// their generation_config.json.
//
// Versions 4 and 5 of transformers differ: `rope_theta` and `torch_dtype` became `rope_parameters` and `dtype`. We read
// both forms, and both versions can read what we write.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/block_scales.h"
#include "checkpoint/dtype.h"
#include "checkpoint/router_rows.h"
#include "config/model_config.h"

namespace athanor::inline checkpoint {

/// What generation_config.json has: which tokens end a text, and the settings that its makers give for sampling.
struct HfGeneration {
  std::string text;                    ///< the whole file, so that it can be written back; empty: there is none
  std::vector<int64_t> eos_token_ids;  ///< any of them ends a text; empty if the file does not tell
  /// Settings that would change a text, as "temperature = 0.6". They are told and kept, and never applied.
  std::vector<std::string> settings;
};

inline constexpr const char* kHfGenerationName = "generation_config.json";
inline constexpr const char* kUpcastsAttention = "reorder_and_upcast_attn";  ///< a member of config.json

/// @throws CheckpointError naming the key: a token id that is none.
HfGeneration parse_hf_generation(std::string_view text, const std::string& where);
/// Reads the file in `folder`; without it the result is empty. @throws as above; IoError.
HfGeneration read_hf_generation(const std::filesystem::path& folder);

struct HfConfig {
  ModelConfig model;
  std::optional<int64_t> bos_token_id, pad_token_id;
  std::vector<int64_t> eos_token_ids;  ///< each ends a text; documents end with the first
  HfGeneration generation;             ///< that of the same folder; empty if only config.json was read
  /// Members of config.json that are neither read nor known to be without effect, as "key = value".
  std::vector<std::string> unknown_members;
  Quantization quantization;
  std::map<std::string, double> dropouts;  ///< rates above 0 by their members: told and kept, we train without
  /// GPT-2's reorder_and_upcast_attn, by which its class adds products of attention in fp32, as ours always are: kept.
  bool upcasts_attention = false;
  double router_aux_loss_coef = 0.01;
  RouterRows
      router_bias;  ///< that of a run, or of files which have it; where they have not, only zeros can be exported
  /// What a class leaves out of its files (Family::layer_left_out), as "model.layers.61 (13 tensors)"; "": nothing.
  std::string left_out;

  std::optional<int64_t> eos_token_id() const {
    return eos_token_ids.empty() ? std::nullopt : std::optional(eos_token_ids.front());
  }
};

/// Reads config.json, from its text (`where` names it in messages) or from the file `path`. Absent members have the
/// defaults of the family's class in `transformers`.
/// @throws CheckpointError that names everything at once: members that are needed (model_type), of a wrong type or
/// impossible, and every option that we do not compute (attention_bias, hidden_act other than the family's, ...);
/// IoError if the file cannot be read.
HfConfig parse_hf_config(std::string_view text, const std::string& where);
HfConfig read_hf_config(const std::filesystem::path& path);

/// Warns of members of config.json that are not known, and of rates of dropout. To be called once for a folder.
void warn_of_unknown_members(const HfConfig& config, const std::filesystem::path& folder);

/// Returns the text of config.json for weights stored as `dtype` (F32 or BF16). @throws ConfigError for an unknown
/// family.
std::string hf_config_text(const HfConfig& config, Dtype dtype);

}  // namespace athanor::inline checkpoint

#pragma once
// config.json of `transformers` folders, read into our model configuration and written from it.
//
// Versions 4 and 5 differ: `rope_theta` and `torch_dtype` became `rope_parameters` and `dtype`. Both are read; what is
// written, both read.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/dtype.h"
#include "checkpoint/router_rows.h"
#include "config/model_config.h"

namespace athanor {

struct HfConfig {
  ModelConfig model;
  /// Token ids; of several ends of text the first.
  std::optional<int64_t> bos_token_id, eos_token_id, pad_token_id;
  double router_aux_loss_coef = 0.01;
  RouterRows router_bias;  ///< of a run of ours; config.json has no place for it, so that such a model is not exported
};

/// @throws CheckpointError that names everything at once: what is missing, of a wrong type or impossible, and every
///         option that we do not compute (rope_scaling, attention_bias, hidden_act other than silu, ...).
HfConfig parse_hf_config(std::string_view text, const std::string& where);
HfConfig read_hf_config(const std::filesystem::path& path);

/// The text of config.json for weights stored as `dtype` (F32 or BF16).
std::string hf_config_text(const HfConfig& config, Dtype dtype);

}  // namespace athanor

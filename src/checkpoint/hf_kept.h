#pragma once
// What the folder of an imported model has that training does not use: it is kept in the run folder, so that exports
// write it back.

#include <filesystem>

#include "checkpoint/hf_config.h"

namespace athanor::inline checkpoint {

/// Has bos_token_id, eos_token_id, pad_token_id, the rates of dropout and kUpcastsAttention of config.json.
inline constexpr const char* kKeptTokensName = "token_ids.json";

/// Writes what `config` has of it into the run folder: kKeptTokensName, and generation_config.json if there was one.
/// @throws IoError.
void keep_hf_settings(const HfConfig& config, const std::filesystem::path& run_folder);

/// Adds what the run folder keeps to the configuration of one of its models. The ends of text stay those of the
/// folder only if the model's own, `config.eos_token_id()`, is one of them.
/// @throws CheckpointError for a damaged file; IoError.
void add_kept_settings(const std::filesystem::path& run_folder, HfConfig& config);

}  // namespace athanor::inline checkpoint

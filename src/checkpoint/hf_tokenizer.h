#pragma once
// The tokenizer's files in a `transformers` folder, so that AutoTokenizer opens it.

#include <filesystem>

#include "checkpoint/hf_config.h"

namespace athanor {

/// Copies `tokenizer_json` as tokenizer.json, and tokenizer_config.json and special_tokens_map.json if they stand
/// beside it. Without a tokenizer_config.json one is made, with the texts of the end-of-text and other ids that
/// `config` has.
/// @throws CheckpointError if an id in `config` is no token of it, or it has tokens beyond the model's vocabulary.
void write_hf_tokenizer(const std::filesystem::path& folder, const std::filesystem::path& tokenizer_json,
                        const HfConfig& config);

}  // namespace athanor

#pragma once
// Handles the tokenizer's files in a `transformers` folder, so that AutoTokenizer opens it.

#include <filesystem>
#include <string>

#include "checkpoint/hf_config.h"

namespace athanor::inline checkpoint {

/// Returns the folder's tokenizer.json, otherwise its tokenizer.model (SentencePiece); empty if it has neither.
std::filesystem::path find_tokenizer_file(const std::filesystem::path& folder);

/// Returns the name under which find_tokenizer_file finds a copy of `tokenizer`: "tokenizer.model" for a file with the
/// ending .model, "tokenizer.json" for any other.
std::string tokenizer_file_name(const std::filesystem::path& tokenizer);

/// Copies the files in the tokenizer's folder that `transformers` needs to use it as before, if they exist:
/// tokenizer_config.json, special_tokens_map.json, added_tokens.json, chat_template.jinja.
void copy_tokenizer_settings(const std::filesystem::path& from_folder, const std::filesystem::path& to_folder);

/// Copies `tokenizer` into `folder` under the name of tokenizer_file_name, with its settings. If there is no
/// tokenizer_config.json, one is made; for a tokenizer.json it contains the texts of the ids in `config` (bos, eos,
/// pad).
/// @throws CheckpointError if such an id is no token of the tokenizer.json, or a tokenizer.json has tokens beyond the
/// model's vocabulary; IoError.
void write_hf_tokenizer(const std::filesystem::path& folder, const std::filesystem::path& tokenizer,
                        const HfConfig& config);

}  // namespace athanor::inline checkpoint

#pragma once
// The tokenizer's files in a `transformers` folder, so that AutoTokenizer opens it.

#include <filesystem>
#include <string>

#include "checkpoint/hf_config.h"

namespace athanor {

/// The folder's tokenizer.json, else its tokenizer.model (SentencePiece); empty if it has neither.
std::filesystem::path find_tokenizer_file(const std::filesystem::path& folder);

/// Under which of these names a copy of `tokenizer` is found again.
std::string tokenizer_file_name(const std::filesystem::path& tokenizer);

/// Copies what stands beside a tokenizer in such a folder and is needed to use it in `transformers` as before:
/// tokenizer_config.json, special_tokens_map.json, chat_template.jinja.
void copy_tokenizer_settings(const std::filesystem::path& from_folder, const std::filesystem::path& to_folder);

/// Copies `tokenizer` under its name, with its settings. Without a tokenizer_config.json one is made, for a
/// tokenizer.json with the texts of the end-of-text and other ids that `config` has.
/// @throws CheckpointError if an id in `config` is no token of a tokenizer.json, or it has tokens beyond the model's
///         vocabulary.
void write_hf_tokenizer(const std::filesystem::path& folder, const std::filesystem::path& tokenizer,
                        const HfConfig& config);

}  // namespace athanor

#pragma once
// Finds the file, or files, that a user means by a tokenizer's path.

#include <filesystem>
#include <memory>
#include <string>

#include "tokenizer/tokenizer_backend.h"

namespace athanor::inline tokenizer {

/// Help text for command lines: the paths that load_tokenizer_files accepts.
inline constexpr const char* kTokenizerHelp =
    "A tokenizer.json; a SentencePiece .model; GPT-2's older vocab.json with merges.txt in the same folder (also "
    "X_vocab.json with X_merges.txt, encoder.json with vocab.bpe); or a folder with one of these";

struct LoadedTokenizer {
  std::shared_ptr<const TokenizerBackend> backend;
  CompanionFiles companions;
  std::string name;  ///< the file, for messages
};

/// Returns the file of the tokenizer in `folder`: its tokenizer.json if it has one, else its tokenizer.model or only
/// .model, else its GPT-2 vocabulary; empty if it has none of them.
/// @throws DataError if it has several files of the last two kinds.
std::filesystem::path find_tokenizer(const std::filesystem::path& folder);

/// Loads the tokenizer at `path`, which is
///   - a tokenizer.json under any name,
///   - a SentencePiece model: any file whose name ends in .model,
///   - a GPT-2 vocabulary: a JSON object of ids in a file whose name ends in vocab.json, with merges.txt of the same
///     prefix next to it, or encoder.json with vocab.bpe next to it,
///   - a folder with one of these (find_tokenizer).
/// The companion files next to it belong to it if the folder is named, or a file with the name tokenizer.json,
/// tokenizer.model or vocab.json.
/// @throws IoError, or DataError naming the file or the file that is missing next to it.
LoadedTokenizer load_tokenizer_files(const std::filesystem::path& path);

}  // namespace athanor::inline tokenizer

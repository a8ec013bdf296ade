#pragma once
// Finds the file, or files, that a user means by a tokenizer's path.

#include <filesystem>
#include <memory>

#include "tokenizer/tokenizer_backend.h"

namespace athanor {

/// Help text for command lines: the paths that load_tokenizer_files accepts.
inline constexpr const char* kTokenizerHelp =
    "A tokenizer.json; a SentencePiece .model; GPT-2's older vocab.json with merges.txt in the same folder (also "
    "X_vocab.json with X_merges.txt, encoder.json with vocab.bpe); or a folder with one of these";

/// Loads the tokenizer at `path`, which is
///   - a tokenizer.json under any name,
///   - a SentencePiece model: any file whose name ends in .model,
///   - a GPT-2 vocabulary: a JSON object of ids in a file whose name ends in vocab.json, with merges.txt of the same
///     prefix next to it, or encoder.json with vocab.bpe next to it,
///   - a folder: its tokenizer.json if it has one, else its tokenizer.model or only .model, else its GPT-2 vocabulary.
/// @throws IoError, or DataError naming the file or the file that is missing next to it.
std::shared_ptr<const TokenizerBackend> load_tokenizer_files(const std::filesystem::path& path);

}  // namespace athanor

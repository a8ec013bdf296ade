#pragma once
// Which file, or files, a user means by a tokenizer's path.

#include <filesystem>
#include <memory>

#include "data/tokenizer/tokenizer_backend.h"

namespace athanor {

/// For command lines: what load_tokenizer_files takes.
inline constexpr const char* kTokenizerHelp =
    "A tokenizer.json; a SentencePiece .model; GPT-2's older vocab.json with merges.txt beside it (also X_vocab.json "
    "with X_merges.txt, encoder.json with vocab.bpe); or a folder with one of these";

/// `path` is
///   - a tokenizer.json under any name,
///   - a SentencePiece model, which is what ends in .model,
///   - a GPT-2 vocabulary: a JSON object of ids that ends in vocab.json, with the same name in merges.txt beside it, or
///     encoder.json with vocab.bpe beside it,
///   - a folder: its tokenizer.json if it has one, else its tokenizer.model or only .model, else its GPT-2 vocabulary.
/// @throws IoError, DataError naming the file or saying what is missing beside it.
std::shared_ptr<const TokenizerBackend> load_tokenizer_files(const std::filesystem::path& path);

}  // namespace athanor

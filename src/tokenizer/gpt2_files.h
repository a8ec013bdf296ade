#pragma once
// Converts GPT-2's older form of a byte-level BPE tokenizer to the equivalent tokenizer.json. It is a vocabulary
// (vocab.json or encoder.json) with the merges next to it (merges.txt or vocab.bpe).

#include <string>
#include <string_view>

namespace athanor::inline tokenizer {

/// Returns a tokenizer.json with GPT-2's words and bytes, no normalizer, and <|endoftext|> as a special token if the
/// vocabulary has it. `merges` has two tokens per line; "#version" lines, blank lines and the carriage returns of
/// Windows are ignored.
/// @throws DataError naming the file with the byte or the line.
std::string json_of_gpt2_files(std::string_view vocab, const std::string& vocab_name, std::string_view merges,
                               const std::string& merges_name);

}  // namespace athanor::inline tokenizer

#pragma once
// GPT-2's older form of a byte-level BPE tokenizer: a vocabulary (vocab.json or encoder.json) and the merges beside it
// (merges.txt or vocab.bpe), as the tokenizer.json that says the same.

#include <string>
#include <string_view>

namespace athanor {

/// GPT-2's words and bytes, no normalizer, and <|endoftext|> as a special token where the vocabulary has it.
/// `merges`: two tokens a line; "#version" lines, blank lines and the carriage returns of Windows mean nothing.
/// @throws DataError naming the file with the byte or the line.
std::string json_of_gpt2_files(std::string_view vocab, const std::string& vocab_name, std::string_view merges,
                               const std::string& merges_name);

}  // namespace athanor

#pragma once
// Cuts text into words as GPT-2 does, with a hand-written scanner several times as fast as the pattern, with which the
// tests compare it.

#include <cstddef>
#include <string_view>

namespace athanor::inline tokenizer {

/// The pattern that gpt2_word_end implements.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// Returns the end of the word that begins at `begin`. `text` is well-formed UTF-8 and `begin` < text.size().
size_t gpt2_word_end(std::string_view text, size_t begin);

}  // namespace athanor::inline tokenizer

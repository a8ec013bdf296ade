#pragma once
// GPT-2's way to cut text into words, by hand: several times the speed of the pattern, which the tests hold it against.

#include <cstddef>
#include <string_view>

namespace athanor {

/// What next_gpt2_word computes.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// Where the word that begins at `begin` ends. `text` is well-formed UTF-8 and `begin` < text.size().
size_t gpt2_word_end(std::string_view text, size_t begin);

}  // namespace athanor

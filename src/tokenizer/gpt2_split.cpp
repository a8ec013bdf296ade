#include "tokenizer/gpt2_split.h"

#include "tokenizer/word_scanner.h"

namespace athanor::inline tokenizer {

size_t gpt2_word_end(std::string_view text, size_t begin) { return WordScanner<kGpt2Words>(text).word_end(begin); }

}  // namespace athanor::inline tokenizer

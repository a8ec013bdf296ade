#pragma once
// Translates the patterns of tokenizer.json, which are written for Oniguruma with Ruby's syntax, to PCRE2's syntax,
// which is similar.

#include <string>
#include <string_view>

namespace athanor::inline tokenizer {

/// Returns a PCRE2 pattern (UTF, UCP, MULTILINE) with the same matches as `pattern` has in `tokenizers`.
/// @throws DataError naming a construct whose meaning differs or is not known to agree.
std::string pcre2_from_oniguruma(std::string_view pattern);

}  // namespace athanor::inline tokenizer

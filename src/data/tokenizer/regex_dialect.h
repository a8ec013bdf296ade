#pragma once
// Patterns of tokenizer.json are written for Oniguruma with Ruby's syntax; PCRE2 reads a near relative.

#include <string>
#include <string_view>

namespace athanor {

/// A PCRE2 pattern (UTF, UCP, MULTILINE) that matches what `pattern` matches in `tokenizers`.
/// @throws DataError naming a construct whose meaning differs or is not known to agree.
std::string pcre2_from_oniguruma(std::string_view pattern);

}  // namespace athanor

#pragma once
// The four normalisation forms of Unicode (annex 15) as `tokenizers` computes them.

#include <cstdint>
#include <string>
#include <string_view>

namespace athanor::inline tokenizer {

/// C composes and D decomposes; the K forms also replace compatibility characters (ﬁ → fi).
enum class UnicodeForm : uint8_t { kNfc = 0, kNfd = 1, kNfkc = 2, kNfkd = 3 };

/// Returns `text` (well-formed UTF-8) in that form: `text` itself if it is in it already, otherwise a view of
/// `storage`.
std::string_view normalize_unicode(UnicodeForm form, std::string_view text, std::string& storage);

}  // namespace athanor::inline tokenizer

#pragma once
// Unicode normalisation form C, as `tokenizers` computes it.

#include <string>
#include <string_view>

namespace athanor {

/// `text` (well-formed UTF-8) composed: `text` itself if it is already, otherwise a view of `storage`.
std::string_view nfc(std::string_view text, std::string& storage);

}  // namespace athanor

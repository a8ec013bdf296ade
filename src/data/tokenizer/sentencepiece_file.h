#pragma once
// The outside of a SentencePiece .model, looked at before libsentencepiece is: that takes a file cut off between two
// fields for a whole one, and believes the offsets in its tables.

#include <string>
#include <string_view>

namespace athanor {

/// A ModelProto: pieces, then trainer_spec and normalizer_spec, each with its length before it; the trie of the
/// normalizer stays inside itself.
/// @throws DataError naming `name` and the byte.
void check_sentencepiece_file(std::string_view bytes, const std::string& name);

}  // namespace athanor

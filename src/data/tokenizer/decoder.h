#pragma once
// The decoder of a tokenizer.json: what bytes each token stands for. ByteLevel, or none.

#include <optional>
#include <string>
#include <vector>

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/json_node.h"

namespace athanor {

class Decoder {
 public:
  /// `node`: the key "decoder", which may be missing.
  /// @throws DataError naming a kind that is not known.
  Decoder(const std::optional<JsonNode>& node, const Bpe& model, const std::vector<AddedToken>& added);

  /// Appends the bytes of `id`, which may be part of a character, or nothing for an id without token.
  /// `first`: whether nothing was appended before; becomes false when something is.
  void append(uint32_t id, bool skip_special_tokens, bool& first, std::string& bytes) const;

  uint32_t vocab_size() const { return static_cast<uint32_t>(tokens_.size()); }

 private:
  struct Token {
    std::string bytes;
    bool exists = false, special = false;
  };
  std::vector<Token> tokens_;
  bool separated_ = false;  // without a decoder, `tokenizers` puts a space between tokens
};

}  // namespace athanor

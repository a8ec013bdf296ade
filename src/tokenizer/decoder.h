#pragma once
// The decoder of a tokenizer.json: it turns a list of tokens into text.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json_node.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/decode_steps.h"
#include "tokenizer/tokenizer_backend.h"

namespace athanor::inline tokenizer {

class TokenDecoder {
 public:
  /// @param node  the key "decoder", which may be missing.
  /// @throws DataError naming a kind that is not known, by its path.
  TokenDecoder(const std::optional<JsonNode>& node, const Bpe& model, const std::vector<AddedToken>& added);

  /// Returns the text of `ids`. Ids without a token are skipped; bytes that form no character become U+FFFD.
  std::string decode(std::span<const uint32_t> ids, bool skip_special_tokens) const;
  /// The stream must not outlive this object.
  std::unique_ptr<DecodeStream> stream(bool skip_special_tokens) const;

  uint32_t vocab_size() const { return static_cast<uint32_t>(tokens_.size()); }

 private:
  class ByteStream;
  class StepStream;

  struct Token {
    std::string text;  // text or bytes
    bool exists = false, special = false;
  };

  bool is_left_out(uint32_t id, bool skip_special_tokens) const {
    return id >= tokens_.size() || !tokens_[id].exists || (skip_special_tokens && tokens_[id].special);
  }
  /// Appends the bytes of `id`, which may be a part of a character. `first` is true if nothing has been appended
  /// before.
  void append(uint32_t id, bool skip_special_tokens, bool& first, std::string& bytes) const;

  std::vector<Token> tokens_;
  bool separated_ = false;              // without a decoder, `tokenizers` puts a space between tokens
  std::vector<DecodeStepMaker> steps_;  // empty for ByteLevel and for no decoder: then tokens_ has bytes
};

}  // namespace athanor::inline tokenizer

#include "data/tokenizer/decoder.h"

#include <algorithm>

#include "data/tokenizer/byte_level.h"

namespace athanor {

Decoder::Decoder(const std::optional<JsonNode>& node, const Bpe& model, const std::vector<AddedToken>& added)
    : separated_(!node) {
  if (node && node->at("type").as_string() != "ByteLevel") {
    node->at("type").complain("the decoder \"{}\" is not supported; ByteLevel and null are",
                              node->at("type").as_string());
  }
  // A token with a character outside the alphabet (an added one with a space, say) stands for its own text.
  const auto bytes_of = [&](const std::string& token) {
    return separated_ ? token : bytes_from_alphabet(token).value_or(token);
  };
  size_t size = model.tokens().size();
  for (const auto& token : added) size = std::max<size_t>(size, token.id + size_t{1});
  tokens_.resize(size);
  for (size_t id = 0; id < model.tokens().size(); ++id) {
    const auto& token = model.tokens()[id];
    tokens_[id] = {bytes_of(token), model.token_to_id(token) == id, false};
  }
  for (const auto& token : added) tokens_[token.id] = {bytes_of(token.content), true, token.special};
}

void Decoder::append(uint32_t id, bool skip_special_tokens, bool& first, std::string& bytes) const {
  if (id >= tokens_.size() || !tokens_[id].exists || (skip_special_tokens && tokens_[id].special)) return;
  if (separated_ && !first) bytes += ' ';
  bytes += tokens_[id].bytes;
  first = false;
}

}  // namespace athanor

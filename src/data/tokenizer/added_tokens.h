#pragma once
// Added tokens: texts that are one token wherever they stand, whatever the model would make of them.
//
// Those that are not "normalized" are looked for in the raw text, the others in the normalised text between them. At
// each place the longest wins.

#include <array>
#include <bitset>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/tokenizer/bpe.h"
#include "data/tokenizer/json_node.h"
#include "data/tokenizer/normalizer.h"

namespace athanor {

struct AddedToken {
  uint32_t id = 0;
  std::string content;
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // and after it
  bool normalized = false;
  bool special = false;  // left out of decoded text on demand
  std::string text;      // what it is decoded to: the content, normalised if it is looked for in normalised text
};

/// Finds the tokens of one kind (raw or normalised) in text.
class TokenFinder {
 public:
  /// Looks for the tokens' `text`, of which none is empty; of equal ones the first counts.
  explicit TokenFinder(std::vector<AddedToken> tokens);

  struct Found {
    size_t begin, end;
    uint32_t id;
  };

  /// Hands the pieces of `text` on in order: `on_text(piece)` and `on_token(id)`. Pieces may be empty.
  template <class OnText, class OnToken>
  void split(std::string_view text, OnText&& on_text, OnToken&& on_token) const {
    size_t done = 0, from = 0;
    while (const auto found = next(text, from, done)) {
      if (found->begin > done) on_text(text.substr(done, found->begin - done));
      on_token(found->id);
      done = found->end;
    }
    on_text(text.substr(done));
  }

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};
  struct Hit {
    size_t begin, end;
    uint32_t token;
  };

  /// The next token that counts; moves `from` behind its text. `done` bounds what lstrip may take.
  std::optional<Found> next(std::string_view text, size_t& from, size_t done) const;
  std::optional<Hit> next_hit(std::string_view text, size_t from) const;
  /// The first place from `from` on where a token may begin, by its first two bytes; text.size() if there is none.
  size_t next_candidate(std::string_view text, size_t from) const;

  std::vector<AddedToken> tokens_;
  // A trie over bytes: node × 256 + byte → node; which token ends at a node.
  std::unordered_map<uint64_t, uint32_t> edges_;
  std::vector<uint32_t> ends_;
  std::array<bool, 256> first_bytes_{};
  std::bitset<65536> first_pairs_;
};

class AddedTokens {
 public:
  /// The key "added_tokens", which may be missing.
  /// @throws DataError by JSON path: ids that `tokenizers` would not give them, contents that repeat.
  AddedTokens(const std::optional<JsonNode>& node, const Bpe& model, const Normalizer& normalizer);

  const std::vector<AddedToken>& tokens() const { return tokens_; }
  const TokenFinder& raw() const { return raw_; }
  const TokenFinder& normalized() const { return normalized_; }

 private:
  std::vector<AddedToken> tokens_;
  TokenFinder raw_, normalized_;
};

}  // namespace athanor

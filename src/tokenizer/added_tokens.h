#pragma once
// Added tokens: texts that are one token wherever they occur, whatever the model would make of them.
//
// Tokens that are not "normalized" are searched for in the raw text, the others in the normalised text between them. At
// each position the longest token wins.

#include <array>
#include <bitset>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json_node.h"
#include "tokenizer/bpe.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/tokenizer.h"

namespace athanor::inline tokenizer {

struct AddedToken {
  uint32_t id = 0;
  std::string content;
  bool single_word = false;  // matches only where no word character touches it
  bool lstrip = false;       // includes the white space before it
  bool rstrip = false;       // includes the white space after it
  bool normalized = false;
  bool special = false;  // left out of decoded text on demand
  std::string text;      // text it decodes to: the content, normalised if it is searched for in normalised text
};

/// Finds the tokens of one kind (raw or normalised) in text.
class TokenFinder {
 public:
  /// Searches for the tokens' `text`, none of which may be empty; of equal texts the first counts.
  explicit TokenFinder(std::vector<AddedToken> tokens);

  /// Bytes [begin, end) of the text, with the white space that the token includes.
  struct Found {
    size_t begin, end;
    uint32_t id;
  };

  /// Passes the pieces of `text` on in order: `on_text(piece)` and `on_token(id)`. Pieces may be empty.
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

  /// Returns the next token that counts, and moves `from` behind its text. `done` bounds the white space that lstrip
  /// may take.
  std::optional<Found> next(std::string_view text, size_t& from, size_t done) const;
  std::optional<Hit> next_hit(std::string_view text, size_t from) const;
  /// Returns the first position from `from` on where a token may begin, judged by its first two bytes; text.size() if
  /// there is none.
  size_t next_candidate(std::string_view text, size_t from) const;

  std::vector<AddedToken> tokens_;
  // A trie over bytes: edges_ maps node × 256 + byte to a node; ends_ has the token that ends at a node.
  std::unordered_map<uint64_t, uint32_t> edges_;
  std::vector<uint32_t> ends_;
  std::array<bool, 256> first_bytes_{};
  std::bitset<65536> first_pairs_;
};

class AddedTokens {
 public:
  /// Reads the key "added_tokens", which may be missing.
  /// @throws DataError with the JSON path: ids that `tokenizers` would not give them, contents that repeat.
  AddedTokens(const std::optional<JsonNode>& node, const Bpe& model, const Normalizer& normalizer);

  const std::vector<AddedToken>& tokens() const { return tokens_; }  ///< in the order of the file
  const TokenFinder& raw(SpecialText special) const { return special == SpecialText::kIsToken ? raw_ : plain_raw_; }
  const TokenFinder& normalized(SpecialText special) const {
    return special == SpecialText::kIsToken ? normalized_ : plain_normalized_;
  }

 private:
  std::vector<AddedToken> tokens_;
  TokenFinder raw_, normalized_;
  TokenFinder plain_raw_, plain_normalized_;  // without the special tokens
};

}  // namespace athanor::inline tokenizer

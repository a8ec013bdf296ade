#pragma once
// Byte pair encoding of one word, the model of a tokenizer.json.
//
// A word begins as one symbol for each byte or character (symbols.h). Of all neighbouring symbols that a merge joins,
// those are joined whose merge comes first in the list, the leftmost pair first, until no merge applies. Source:
// Sennrich et al., ACL 2016.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "base/json_node.h"
#include "tokenizer/cut_points.h"
#include "tokenizer/symbols.h"
#include "tokenizer/word_cache.h"

namespace athanor::inline tokenizer {

/// The result of a merge of two tokens; merges of lower rank are applied first.
struct Merge {
  uint32_t rank, id;
};

/// Merges by pair: a hash table with open addressing, one cache line per look-up, and a filter in front.
class MergeTable {
 public:
  /// @param num_merges  the most pairs that will be set.
  explicit MergeTable(size_t num_merges = 0);
  /// Sets the merge of a pair; a later call replaces an earlier one.
  void set(uint32_t left, uint32_t right, Merge merge);
  const Merge* find(uint32_t left, uint32_t right) const {
    const uint64_t key = uint64_t{left} << 32 | right;
    const uint64_t bit = key * kMultiplier >> filter_shift_;
    if (!(filter_[bit / 64] >> (bit % 64) & 1)) return nullptr;  // most pairs have no merge
    for (size_t i = slot_of(key);; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return &slots_[i].merge;
      if (slots_[i].key == kEmpty) return nullptr;
    }
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};  // no pair: ids stay below 2^31
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge{};
  };
  static constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15ull;
  size_t slot_of(uint64_t key) const { return static_cast<size_t>(key * kMultiplier >> shift_); }

  std::vector<Slot> slots_;
  size_t mask_;
  int shift_;
  // One bit for each of four times as many hash values as there are slots, small enough to stay in cache if the slots
  // do not.
  std::vector<uint64_t> filter_;
  int filter_shift_;
};

class Bpe {
 public:
  /// Working memory of one thread; it belongs to one model.
  struct Scratch {
    struct Symbol {
      uint32_t id;
      int32_t previous, next;
    };
    WordCache cache;
    std::vector<Symbol> symbols;
    std::vector<uint64_t> heap;
    std::vector<uint32_t> ids;
  };

  /// @param node   the key "model".
  /// @param words  the kind of the words that encode() will get.
  /// @param plain  selects no cache, no cuts, and a merge loop that examines all neighbours each time: the oracle of
  ///               the fast paths.
  /// @throws DataError with the JSON path.
  static Bpe parse(const JsonNode& node, WordKind words, bool plain = false);
  Bpe(Bpe&&) = default;  // not copyable: a copy's views would point into the original
  Bpe& operator=(Bpe&&) = default;

  /// Appends the ids of one word of the pre-tokenizer.
  /// @throws DataError if a character needs an unknown token that the vocabulary lacks, or if the word has 2 GiB or
  ///         more.
  void encode(std::string_view word, Scratch& scratch, std::vector<uint32_t>& out) const;

  /// Tokens by id, as the file spells them; ids without a token are empty.
  const std::vector<std::string>& tokens() const { return tokens_; }
  std::optional<uint32_t> token_to_id(std::string_view token) const;
  /// Number of tokens in the vocabulary, at most the highest id + 1.
  size_t num_tokens() const { return ids_.size(); }

 private:
  Bpe() = default;
  void parse_vocab(const JsonNode& node);
  void parse_merges(const JsonNode& model, WordKind words);
  void parse_symbols(const JsonNode& node, WordKind words);
  void parse_whole_words(const JsonNode& node, WordKind words);
  void encode_part(std::string_view part, Scratch& scratch, std::vector<uint32_t>& out) const;
  void encode_anew(std::string_view word, Scratch& scratch, std::vector<uint32_t>& out) const;
  void merge_plainly(std::vector<uint32_t>& ids) const;
  void merge_short(Scratch& scratch) const;
  void merge_long(Scratch& scratch) const;

  struct TokenHash {
    size_t operator()(std::string_view token) const { return hash_u64(token); }
  };
  static constexpr uint32_t kNoToken = ~uint32_t{0};
  // Up to this length, examining all neighbours for each merge costs less than a heap.
  static constexpr size_t kMaxShortWord = 64;

  std::vector<std::string> tokens_;
  std::unordered_map<std::string_view, uint32_t, TokenHash> ids_;  // views of tokens_
  std::unordered_map<std::string, uint32_t> whole_words_;          // as words are spelled; used only with ignore_merges
  std::unique_ptr<const SymbolTable> symbols_;
  MergeTable merges_;
  CutPoints cuts_;
  bool plain_ = false, ignore_merges_ = false;
};

}  // namespace athanor::inline tokenizer

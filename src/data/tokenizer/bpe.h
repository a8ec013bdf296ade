#pragma once
// The model of a tokenizer.json: byte pair encoding of one word.
//
// A word begins as one symbol for each byte or character (symbols.h). Of all neighbours that a merge joins, the merge
// that comes first in the list wins, and of equal ones the leftmost; until none is left. Sennrich et al., ACL 2016.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "data/tokenizer/cut_points.h"
#include "data/tokenizer/json_node.h"
#include "data/tokenizer/symbols.h"
#include "data/tokenizer/word_cache.h"

namespace athanor {

/// What a merge makes of a pair of tokens; a lower rank goes first.
struct Merge {
  uint32_t rank, id;
};

/// Merges by pair: open addressing, one cache line a look-up, and a filter before it.
class MergeTable {
 public:
  explicit MergeTable(size_t num_merges = 0);
  /// The last merge of a pair counts.
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
  // A bit for each of four times as many hashes: small enough to stay in the cache where the slots do not.
  std::vector<uint64_t> filter_;
  int filter_shift_;
};

class Bpe {
 public:
  /// What one thread needs to encode; belongs to one model.
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

  /// `plain`: no cache, no cuts, and merging that looks at all neighbours each time: the oracle of the fast ways.
  /// @throws DataError by JSON path.
  static Bpe parse(const JsonNode& node, WordKind words, bool plain = false);
  Bpe(Bpe&&) = default;  // a copy's views would look into the original
  Bpe& operator=(Bpe&&) = default;

  /// Appends the ids of one word of the pre-tokenizer.
  /// @throws DataError if a character needs an unknown token that the vocabulary lacks.
  void encode(std::string_view word, Scratch& scratch, std::vector<uint32_t>& out) const;

  /// Tokens as they stand in the file, by id; ids without one are empty.
  const std::vector<std::string>& tokens() const { return tokens_; }
  std::optional<uint32_t> token_to_id(std::string_view token) const;
  /// How many tokens the vocabulary has, which is not more than the highest id + 1.
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
  // Up to here a look at all neighbours for each merge costs less than a heap.
  static constexpr size_t kMaxShortWord = 64;

  std::vector<std::string> tokens_;
  std::unordered_map<std::string_view, uint32_t, TokenHash> ids_;  // views of tokens_
  std::unordered_map<std::string, uint32_t> whole_words_;          // as words are spelled; only with ignore_merges
  std::unique_ptr<const SymbolTable> symbols_;
  MergeTable merges_;
  CutPoints cuts_;
  bool plain_ = false, ignore_merges_ = false;
};

}  // namespace athanor

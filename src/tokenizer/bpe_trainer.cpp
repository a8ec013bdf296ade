#include "tokenizer/bpe_trainer.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <queue>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "tokenizer/bpe_writer.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/known_patterns.h"

namespace athanor::inline tokenizer {
namespace {

struct Word {
  std::vector<uint32_t> ids;
  int64_t count;
};

// Ordered by left id, then right id: the order of equal counts.
using PairKey = uint64_t;
PairKey pair_key(uint32_t left, uint32_t right) { return uint64_t{left} << 32 | right; }

// A pair that may be joined next. `count` may be outdated: it is compared with the current count when the pair is
// popped.
struct Candidate {
  PairKey pair;
  int64_t count;
  std::vector<uint32_t> words;  // words in which the pair appeared; some may no longer have it
};

struct ComesLater {
  bool operator()(const Candidate& a, const Candidate& b) const {
    return a.count != b.count ? a.count < b.count : a.pair > b.pair;
  }
};

// Counts of all pairs, updated with each merge: a merge costs as much as the words that it changes.
class Trainer {
 public:
  Trainer(const WordCounts& words, const BpeTraining& training) : training_(training) {
    for (const auto& token : training.special_tokens) add_token(token);
    add_alphabet();
    add_words(words);
    find_first_pairs();
  }

  BpeVocabulary run() {
    while (tokens_.size() < training_.vocab_size && !queue_.empty()) {
      // The queue gives its top as const, but this entry leaves it at once.
      auto best = std::move(const_cast<Candidate&>(queue_.top()));
      queue_.pop();
      if (const auto now = counts_[best.pair]; now != best.count) {
        best.count = now;
        queue_.push(std::move(best));
        continue;
      }
      if (best.count < 1 || static_cast<uint64_t>(best.count) < training_.min_frequency) break;
      join(best);
    }
    return finish();
  }

 private:
  uint32_t add_token(const std::string& token) {
    const auto [entry, is_new] = ids_.try_emplace(token, static_cast<uint32_t>(tokens_.size()));
    if (is_new) tokens_.push_back(token);
    return entry->second;
  }

  // Adds the bytes in the order of the characters that represent them.
  void add_alphabet() {
    std::array<int, 256> bytes;
    std::iota(bytes.begin(), bytes.end(), 0);
    const auto name = [](int byte) { return code_point_of_byte(static_cast<uint8_t>(byte)); };
    std::sort(bytes.begin(), bytes.end(), [&](int a, int b) { return name(a) < name(b); });
    for (const int byte : bytes)
      byte_ids_[byte] = add_token(alphabet_from_bytes(std::string(1, static_cast<char>(byte))));
  }

  void add_words(const WordCounts& words) {
    std::vector<std::pair<std::string_view, uint64_t>> sorted(words.counts().begin(), words.counts().end());
    std::sort(sorted.begin(), sorted.end());
    words_.reserve(sorted.size());
    for (const auto& [text, count] : sorted) {
      ATHANOR_ASSERT(count <= std::numeric_limits<int64_t>::max());
      auto& word = words_.emplace_back(Word{{}, static_cast<int64_t>(count)});
      for (const char byte : text) word.ids.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
    }
  }

  void find_first_pairs() {
    std::unordered_map<PairKey, std::vector<uint32_t>> places;
    for (uint32_t w = 0; w < words_.size(); ++w) {
      const auto& ids = words_[w].ids;
      for (size_t i = 0; i + 1 < ids.size(); ++i) {
        const auto pair = pair_key(ids[i], ids[i + 1]);
        counts_[pair] += words_[w].count;
        note_place(places[pair], w);
      }
    }
    push_all(places);
  }

  static void note_place(std::vector<uint32_t>& words, uint32_t word) {
    if (words.empty() || words.back() != word) words.push_back(word);
  }

  void push_all(std::unordered_map<PairKey, std::vector<uint32_t>>& places) {
    for (auto& [pair, words] : places) {
      if (const auto count = counts_[pair]; count > 0) queue_.push({pair, count, std::move(words)});
    }
    places.clear();
  }

  void join(const Candidate& best) {
    const auto left = static_cast<uint32_t>(best.pair >> 32), right = static_cast<uint32_t>(best.pair);
    // Two ways to spell one token share its id.
    const uint32_t joined = add_token(tokens_[left] + tokens_[right]);
    merges_[best.pair] = next_rank_++;
    for (const uint32_t w : best.words) join_in_word(w, left, right, joined);
    push_all(new_places_);
  }

  void join_in_word(uint32_t w, uint32_t left, uint32_t right, uint32_t joined) {
    auto& ids = words_[w].ids;
    const auto change = [&](uint32_t a, uint32_t b, int64_t by) {
      counts_[pair_key(a, b)] += by;
      if (by > 0) note_place(new_places_[pair_key(a, b)], w);
    };
    const int64_t count = words_[w].count;
    size_t out = 0;
    for (size_t i = 0; i < ids.size();) {
      if (i + 1 == ids.size() || ids[i] != left || ids[i + 1] != right) {
        ids[out++] = ids[i++];
        continue;
      }
      if (out > 0) {
        change(ids[out - 1], left, -count);
        change(ids[out - 1], joined, count);
      }
      if (i + 2 < ids.size()) {
        change(right, ids[i + 2], -count);
        change(joined, ids[i + 2], count);
      }
      ids[out++] = joined;
      i += 2;
    }
    ids.resize(out);
  }

  BpeVocabulary finish() {
    BpeVocabulary vocabulary;
    vocabulary.tokens = std::move(tokens_);
    vocabulary.special_tokens = training_.special_tokens;
    std::vector<std::pair<uint64_t, PairKey>> by_rank;
    for (const auto& [pair, rank] : merges_) by_rank.emplace_back(rank, pair);
    std::sort(by_rank.begin(), by_rank.end());
    for (const auto& [rank, pair] : by_rank) {
      vocabulary.merges.push_back({static_cast<uint32_t>(pair >> 32), static_cast<uint32_t>(pair)});
    }
    return vocabulary;
  }

  const BpeTraining& training_;
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, uint32_t> ids_;
  std::array<uint32_t, 256> byte_ids_{};
  std::vector<Word> words_;
  std::unordered_map<PairKey, int64_t> counts_;
  std::unordered_map<PairKey, std::vector<uint32_t>> new_places_;
  std::priority_queue<Candidate, std::vector<Candidate>, ComesLater> queue_;
  // If a pair is joined twice (its left or right token was made in a second way) the last rank counts, as in
  // `tokenizers`.
  std::unordered_map<PairKey, uint64_t> merges_;
  uint64_t next_rank_ = 0;
};

}  // namespace

void WordCounts::add(std::string_view utf8) {
  if (const auto bad = find_invalid_utf8(utf8)) {
    fail<DataError>("byte {} (0x{:02X}) is not UTF-8; convert the text first", *bad,
                    static_cast<unsigned char>(utf8[*bad]));
  }
  for (size_t at = 0; at < utf8.size();) {
    const size_t end = gpt2_word_end(utf8, at);
    const auto word = utf8.substr(at, end - at);
    if (const auto found = counts_.find(word); found != counts_.end()) {
      ++found->second;
    } else {
      counts_.emplace(word, 1);
    }
    at = end;
  }
}

void check_bpe_training(const BpeTraining& training) {
  const size_t smallest = 256 + training.special_tokens.size();
  ATHANOR_CHECK(training.vocab_size >= smallest, "vocab-size ({}) must be at least {}: 256 bytes and {} special tokens",
                training.vocab_size, smallest, training.special_tokens.size());
  std::set<std::string> seen;
  for (const auto& token : training.special_tokens) {
    ATHANOR_CHECK(!token.empty(), "a special token is empty; give it a text such as <|endoftext|>");
    ATHANOR_CHECK(!find_invalid_utf8(token), "the special token \"{}\" is not UTF-8", token);
    ATHANOR_CHECK(seen.insert(token).second, "the special token \"{}\" is there twice", token);
    const auto bytes = bytes_from_alphabet(token);
    ATHANOR_CHECK(!bytes || bytes->size() > 1, "the special token \"{}\" is the name of a byte; choose a longer text",
                  token);
  }
}

std::string train_bpe(const WordCounts& words, const BpeTraining& training) {
  check_bpe_training(training);
  return tokenizer_json(Trainer(words, training).run());
}

}  // namespace athanor::inline tokenizer

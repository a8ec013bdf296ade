#pragma once
// The words met lately and their ids. Text repeats itself: in English nine words of ten are found here.

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace athanor {

/// One place for each hash, the newcomer wins: 2 MiB, no matter how long the text.
class WordCache {
 public:
  static constexpr size_t kMaxWordBytes = 23, kMaxIds = 9;

  /// A word ready to be looked up: its bytes, then zeros, then its length.
  using Key = std::array<uint64_t, 3>;

  static bool fits(std::string_view word) { return word.size() <= kMaxWordBytes; }

  static Key key_of(std::string_view word) {
    unsigned char bytes[sizeof(Key)] = {};
    std::memcpy(bytes, word.data(), word.size());
    bytes[kMaxWordBytes] = static_cast<unsigned char>(word.size());
    Key key;
    std::memcpy(key.data(), bytes, sizeof(key));
    return key;
  }

  /// The ids of the word, or nothing.
  std::span<const uint32_t> find(const Key& key) const {
    if (entries_.empty()) return {};
    const auto& entry = entries_[slot_of(key)];
    if (entry.key != key) return {};
    return {entry.ids.data(), entry.num_ids};
  }

  void put(const Key& key, std::span<const uint32_t> ids) {
    if (ids.empty() || ids.size() > kMaxIds) return;
    if (entries_.empty()) entries_.resize(kNumEntries);
    auto& entry = entries_[slot_of(key)];
    entry.key = key;
    entry.num_ids = static_cast<uint32_t>(ids.size());
    std::copy(ids.begin(), ids.end(), entry.ids.begin());
  }

 private:
  static constexpr int kLogEntries = 15;
  static constexpr size_t kNumEntries = size_t{1} << kLogEntries;
  struct alignas(64) Entry {
    Key key{};  // no word has length 0
    std::array<uint32_t, kMaxIds> ids;
    uint32_t num_ids;
  };
  static_assert(sizeof(Entry) == 64, "an entry is a cache line");

  static size_t slot_of(const Key& key) {
    uint64_t hash = key[0] * 0x9E3779B97F4A7C15ull;
    hash = (hash ^ (hash >> 32) ^ key[1]) * 0xBF58476D1CE4E5B9ull;
    hash = (hash ^ (hash >> 29) ^ key[2]) * 0x94D049BB133111EBull;
    return static_cast<size_t>(hash >> (64 - kLogEntries));
  }

  std::vector<Entry> entries_;
};

}  // namespace athanor

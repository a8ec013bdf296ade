#pragma once
// A cache of recent words and their ids. Text is repetitive: in English nineteen words of twenty are found here.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace athanor::inline tokenizer {

/// Each hash has two places, and a new word replaces the older one. The size is 4 MiB, however long the text is.
class WordCache {
 public:
  static constexpr size_t kMaxWordBytes = 23, kMaxIds = 9;

  /// A word prepared for look-up: its bytes, then zeros, then its length.
  struct Key {
    uint64_t parts[3];
    bool operator==(const Key& other) const {
      return ((parts[0] ^ other.parts[0]) | (parts[1] ^ other.parts[1]) | (parts[2] ^ other.parts[2])) == 0;
    }
  };

  static bool fits(std::string_view word) { return word.size() <= kMaxWordBytes; }

  /// Returns the key of a word that fits() and is not empty.
  static Key key_of(std::string_view word) {
    const char* bytes = word.data();
    const size_t size = word.size();
    const uint64_t length = uint64_t{size} << 56;
    if (size <= 8) return {{load_up_to_8(bytes, size), 0, length}};
    if (size <= 16) return {{load<uint64_t>(bytes), load_end(bytes, size, 16), length}};
    return {{load<uint64_t>(bytes), load<uint64_t>(bytes + 8), load_end(bytes, size, 24) | length}};
  }

  /// Returns the ids of the word; empty if it is not in the cache. They are valid until the next put().
  std::span<const uint32_t> find(const Key& key) const {
    if (entries_.empty()) return {};
    const auto* pair = &entries_[place_of(key)];
    if (pair[0].key == key) return {pair[0].ids.data(), pair[0].num_ids};
    if (pair[1].key == key) return {pair[1].ids.data(), pair[1].num_ids};
    return {};
  }

  /// Adds a word that is not in the cache; one without ids or with more than kMaxIds is left out.
  void put(const Key& key, std::span<const uint32_t> ids) {
    if (ids.empty() || ids.size() > kMaxIds) return;
    if (entries_.empty()) entries_.resize(kNumEntries);
    auto* pair = &entries_[place_of(key)];
    pair[1] = pair[0];
    pair[0].key = key;
    pair[0].num_ids = static_cast<uint32_t>(ids.size());
    std::copy(ids.begin(), ids.end(), pair[0].ids.begin());
  }

 private:
  static constexpr int kLogEntries = 16;
  static constexpr size_t kNumEntries = size_t{1} << kLogEntries;
  struct alignas(64) Entry {
    Key key{};  // no word has length 0
    std::array<uint32_t, kMaxIds> ids;
    uint32_t num_ids;
  };
  static_assert(sizeof(Entry) == 64, "an entry is a cache line");

  template <class T>
  static T load(const char* from) {
    T value;
    std::memcpy(&value, from, sizeof(T));
    return value;
  }
  // Two loads that overlap in the middle read the same bytes there. (Athanor requires little endian throughout.)
  static uint64_t load_up_to_8(const char* bytes, size_t size) {
    if (size == 8) return load<uint64_t>(bytes);
    if (size >= 4) return load<uint32_t>(bytes) | uint64_t{load<uint32_t>(bytes + size - 4)} << (8 * (size - 4));
    if (size >= 2) return load<uint16_t>(bytes) | uint64_t{load<uint16_t>(bytes + size - 2)} << (8 * (size - 2));
    return size == 1 ? static_cast<unsigned char>(*bytes) : 0;
  }
  // Returns the bytes of [end - 8, end) that belong to a word of `size` bytes; `size` is more than end - 8 and more
  // than 8.
  static uint64_t load_end(const char* bytes, size_t size, size_t end) {
    return load<uint64_t>(bytes + size - 8) >> (8 * (end - size));
  }

  static size_t place_of(const Key& key) {
    uint64_t hash = key.parts[0] * 0x9E3779B97F4A7C15ull;
    hash = (hash ^ (hash >> 32) ^ key.parts[1]) * 0xBF58476D1CE4E5B9ull;
    hash = (hash ^ (hash >> 29) ^ key.parts[2]) * 0x94D049BB133111EBull;
    return static_cast<size_t>(hash >> (64 - kLogEntries)) & ~size_t{1};
  }

  std::vector<Entry> entries_;
};

}  // namespace athanor::inline tokenizer

#include "staging/leaders.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_set>

#include "base/hash.h"

namespace athanor::staging {

Leaders Leaders::find(comm::Wire& wire, const std::string& place) {
  TreeMessages messages(wire);
  const uint64_t own = hash_u64(place);
  std::string places(reinterpret_cast<const char*>(&own), sizeof own);
  places = messages.reduce(places, [](std::string& into, const std::string& other) { into += other; });
  std::string bits((static_cast<size_t>(wire.size()) + 63) / 64 * sizeof(uint64_t), '\0');
  std::vector<uint64_t> words(bits.size() / sizeof(uint64_t));
  if (wire.rank() == 0) {
    std::unordered_set<uint64_t> seen;
    for (size_t rank = 0; rank < places.size() / sizeof own; ++rank) {
      uint64_t hash;
      std::memcpy(&hash, places.data() + rank * sizeof hash, sizeof hash);
      if (seen.insert(hash).second) words[rank / 64] |= uint64_t{1} << (rank % 64);
    }
    std::memcpy(bits.data(), words.data(), bits.size());
  }
  bits = messages.broadcast(std::move(bits));
  std::memcpy(words.data(), bits.data(), bits.size());
  return Leaders(std::move(words));
}

Leaders::Leaders(std::vector<uint64_t> bits) : bits_(std::move(bits)) {
  before_.push_back(0);
  for (const uint64_t word : bits_) before_.push_back(before_.back() + std::popcount(word));
}

int Leaders::node_of(int rank) const {
  const auto word = static_cast<size_t>(rank) / 64;
  return before_[word] + std::popcount(bits_[word] & ((uint64_t{1} << (rank % 64)) - 1));
}

int Leaders::rank_of(int node) const {
  const auto behind = std::upper_bound(before_.begin(), before_.end(), node);
  const auto word = static_cast<size_t>(behind - before_.begin()) - 1;
  uint64_t left = bits_[word];
  for (int i = before_[word]; i < node; ++i) left &= left - 1;
  return static_cast<int>(word) * 64 + std::countr_zero(left);
}

}  // namespace athanor::staging

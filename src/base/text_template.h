#pragma once
// The tokens that stand before and after each text that a model reads: BOS, where a tokenizer puts one.

#include <cstdint>
#include <span>
#include <vector>

namespace athanor {

struct TextTemplate {
  std::vector<uint32_t> before, after;

  bool empty() const { return before.empty() && after.empty(); }
  /// Returns `before`, `ids` and `after` as one list.
  std::vector<uint32_t> around(std::span<const uint32_t> ids) const {
    std::vector<uint32_t> all(before);
    all.insert(all.end(), ids.begin(), ids.end());
    all.insert(all.end(), after.begin(), after.end());
    return all;
  }
  bool operator==(const TextTemplate&) const = default;
};

}  // namespace athanor

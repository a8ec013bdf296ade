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
  /// Returns the template without `eos_id` at its end, which each document of training data gets in any case.
  TextTemplate without_end(uint32_t eos_id) const {
    TextTemplate rest = *this;
    if (!rest.after.empty() && rest.after.back() == eos_id) rest.after.pop_back();
    return rest;
  }
  bool operator==(const TextTemplate&) const = default;
};

}  // namespace athanor

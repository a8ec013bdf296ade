#pragma once
// Finds where a long word of characters may be cut without a change of its ids: between two characters that no merge
// joins.
//
// A Llama-2 file has no pre-tokenizer, so a whole document is one word. But what merges do on one side of a border that
// none of them crosses does not depend on the other side. A merge (l, r) crosses only between the last character of l
// and the first of r, because the symbols that became l were spelled like l. So the merges determine the borders.

#include <algorithm>
#include <bit>
#include <bitset>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/symbols.h"
#include "tokenizer/unicode.h"

namespace athanor::inline tokenizer {

class CutPoints {
 public:
  /// The characters at which a merge joins: the last of its left token and the first of its right token.
  struct Border {
    uint32_t left, right;
  };

  /// An object that never cuts.
  CutPoints() = default;
  /// @param symbols      has characters and no affixes, and outlives this object.
  /// @param crossed      the borders that merges cross.
  /// @param bytes_merge  true if some merge takes a byte token.
  CutPoints(const SymbolTable& symbols, const std::vector<Border>& crossed, bool bytes_merge);

  bool any() const { return symbols_ != nullptr; }

  /// Returns the end of the part of `word` that begins at `begin`, which is less than word.size().
  size_t next(std::string_view word, size_t begin) const {
    auto [left, length] = decode_utf8(&word[begin]);
    for (size_t at = begin + length; at < word.size(); at += length) {
      const auto right = decode_utf8(&word[at]);
      if (may_cut(left, right.code_point)) return at;
      left = right.code_point;
      length = right.num_bytes;
    }
    return word.size();
  }

 private:
  static constexpr uint32_t kAscii = 128;

  bool may_cut(uint32_t left, uint32_t right) const {
    if (left < kAscii && right < kAscii) return ascii_[left * kAscii + right];
    return may_cut_any(left, right);
  }
  bool may_cut_any(uint32_t left, uint32_t right) const {
    const auto a = symbols_->kind_of(left), b = symbols_->kind_of(right);
    if (a == SymbolTable::Kind::kOther || b == SymbolTable::Kind::kOther) return false;
    if (a == SymbolTable::Kind::kBytes || b == SymbolTable::Kind::kBytes) return !bytes_merge_;
    const size_t bit = bit_of(left, right);
    return !(crossed_[bit / 64] >> (bit % 64) & 1);
  }
  size_t bit_of(uint32_t left, uint32_t right) const {
    return static_cast<size_t>(((uint64_t{left} << 32 | right) * 0x9E3779B97F4A7C15ull) >> shift_);
  }

  const SymbolTable* symbols_ = nullptr;
  bool bytes_merge_ = true;
  int shift_ = 0;
  std::vector<uint64_t> crossed_;  // by hash: two borders that share a bit cost a possible cut but never change an id
  std::bitset<kAscii * kAscii> ascii_;
};

inline CutPoints::CutPoints(const SymbolTable& symbols, const std::vector<Border>& crossed, bool bytes_merge)
    : symbols_(&symbols), bytes_merge_(bytes_merge) {
  // 16 bits for each border keep chance collisions to one pair in 16 or fewer, up to 256 KiB.
  const size_t num_bits = std::bit_ceil(std::clamp<size_t>(crossed.size() * 16, 1 << 10, 1 << 21));
  shift_ = 64 - std::countr_zero(num_bits);
  crossed_.resize(num_bits / 64);
  for (const auto [left, right] : crossed) {
    const size_t bit = bit_of(left, right);
    crossed_[bit / 64] |= uint64_t{1} << (bit % 64);
  }
  for (uint32_t left = 0; left < kAscii; ++left) {
    for (uint32_t right = 0; right < kAscii; ++right) ascii_[left * kAscii + right] = may_cut_any(left, right);
  }
}

}  // namespace athanor::inline tokenizer

#include "tokenizer/bpe.h"

#include <algorithm>
#include <bit>

namespace athanor::inline tokenizer {
MergeTable::MergeTable(size_t num_merges)
    : slots_(std::bit_ceil(std::max<size_t>(16, num_merges * 2))), mask_(slots_.size() - 1),
      shift_(64 - std::countr_zero(slots_.size())), filter_(slots_.size() / 16), filter_shift_(shift_ - 2) {}

void MergeTable::set(uint32_t left, uint32_t right, Merge merge) {
  const uint64_t key = uint64_t{left} << 32 | right;
  const uint64_t bit = key * kMultiplier >> filter_shift_;
  filter_[bit / 64] |= uint64_t{1} << (bit % 64);
  size_t i = slot_of(key);
  while (slots_[i].key != key && slots_[i].key != kEmpty) i = (i + 1) & mask_;
  slots_[i] = {key, merge};
}

std::optional<uint32_t> Bpe::token_to_id(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

void Bpe::encode(std::string_view word, Scratch& scratch, std::vector<uint32_t>& out) const {
  if (!cuts_.any() || WordCache::fits(word)) return encode_part(word, scratch, out);
  for (size_t begin = 0; begin < word.size();) {
    const size_t end = cuts_.next(word, begin);
    encode_part(word.substr(begin, end - begin), scratch, out);
    begin = end;
  }
}

void Bpe::encode_part(std::string_view word, Scratch& scratch, std::vector<uint32_t>& out) const {
  if (plain_ || !WordCache::fits(word)) return encode_anew(word, scratch, out);
  const auto key = WordCache::key_of(word);
  if (const auto ids = scratch.cache.find(key); !ids.empty()) {
    if (ids.size() == 1) {  // this is nearly always the case
      out.push_back(ids[0]);
    } else {
      out.insert(out.end(), ids.begin(), ids.end());
    }
    return;
  }
  const size_t begin = out.size();
  encode_anew(word, scratch, out);
  scratch.cache.put(key, std::span(out).subspan(begin));
}

void Bpe::encode_anew(std::string_view word, Scratch& scratch, std::vector<uint32_t>& out) const {
  if (ignore_merges_) {
    if (const auto whole = whole_words_.find(std::string(word)); whole != whole_words_.end()) {
      out.push_back(whole->second);
      return;
    }
  }
  ATHANOR_CHECK_DATA(word.size() < size_t{1} << 31, "a word of {} bytes is too long for BPE; cut the document",
                     word.size());
  scratch.ids.clear();
  symbols_->append(word, scratch.ids);
  if (plain_) {
    merge_plainly(scratch.ids);
  } else if (scratch.ids.size() <= kMaxShortWord) {
    merge_short(scratch);
  } else {
    merge_long(scratch);
  }
  out.insert(out.end(), scratch.ids.begin(), scratch.ids.end());
}

}  // namespace athanor::inline tokenizer

#include "tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>

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

namespace {

// No pair of rank and id is as large.
constexpr uint64_t kNoMerge = ~uint64_t{0};

}  // namespace

// The reference: it looks at all neighbours each time.
void Bpe::merge_plainly(std::vector<uint32_t>& ids) const {
  while (true) {
    size_t best = ids.size();
    const Merge* best_merge = nullptr;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto* merge = merges_.find(ids[i], ids[i + 1]);
      if (!merge || (best_merge && merge->rank >= best_merge->rank)) continue;
      best = i;
      best_merge = merge;
    }
    if (!best_merge) return;
    ids[best] = best_merge->id;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

// Remembers what each pair merges into, as rank and id in one number, so that the least number is the best merge.
void Bpe::merge_short(Scratch& scratch) const {
  auto& ids = scratch.ids;
  uint64_t merges[kMaxShortWord];
  size_t count = ids.size();  // number of symbols; pair i consists of symbols i and i + 1
  if (count < 2) return;
  const auto merge_of = [&](size_t i) {
    const auto* merge = merges_.find(ids[i], ids[i + 1]);
    return merge ? uint64_t{merge->rank} << 32 | merge->id : kNoMerge;
  };
  for (size_t i = 0; i + 1 < count; ++i) merges[i] = merge_of(i);
  while (count > 1) {
    const size_t num_pairs = count - 1;
    size_t best = 0;
    uint64_t least = merges[0];
    for (size_t i = 1; i < num_pairs; ++i) {
      best = merges[i] < least ? i : best;
      least = std::min(least, merges[i]);
    }
    if (least == kNoMerge) break;
    ids[best] = static_cast<uint32_t>(least);
    std::copy(ids.begin() + static_cast<ptrdiff_t>(best) + 2, ids.begin() + static_cast<ptrdiff_t>(count),
              ids.begin() + static_cast<ptrdiff_t>(best) + 1);
    --count;
    if (best + 1 < num_pairs) {
      std::copy(merges + best + 2, merges + num_pairs, merges + best + 1);
      merges[best] = merge_of(best);
    }
    if (best > 0) merges[best - 1] = merge_of(best - 1);
  }
  ids.resize(count);
}

// Uses a linked list of symbols and a heap of candidates, some of them outdated: n log n for a megabyte without a
// space.
void Bpe::merge_long(Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;  // rank and position in one number, the least first
  const auto later = std::greater<uint64_t>();
  const auto count = static_cast<int32_t>(scratch.ids.size());
  symbols.resize(scratch.ids.size());
  heap.clear();
  const auto merge_at = [&](int32_t left) -> const Merge* {
    const int32_t right = symbols[left].next;
    return right < 0 ? nullptr : merges_.find(symbols[left].id, symbols[right].id);
  };
  const auto key = [](const Merge& merge, int32_t left) {
    return uint64_t{merge.rank} << 32 | static_cast<uint32_t>(left);
  };
  const auto push = [&](int32_t left) {
    const auto* merge = merge_at(left);
    if (!merge) return;
    heap.push_back(key(*merge, left));
    std::push_heap(heap.begin(), heap.end(), later);
  };
  for (int32_t i = 0; i < count; ++i) symbols[i] = {scratch.ids[i], i - 1, i + 1 < count ? i + 1 : -1};
  for (int32_t i = 0; i + 1 < count; ++i) {
    if (const auto* merge = merge_at(i)) heap.push_back(key(*merge, i));
  }
  std::make_heap(heap.begin(), heap.end(), later);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const uint64_t best = heap.back();
    heap.pop_back();
    const auto position = static_cast<int32_t>(best & 0xFFFFFFFF);
    auto& left = symbols[position];
    if (left.id == kNoToken) continue;  // it was joined to the one before it
    const auto* merge = merge_at(position);
    if (!merge || key(*merge, position) != best) continue;  // or has become another pair
    auto& right = symbols[left.next];
    left.id = merge->id;
    right.id = kNoToken;
    left.next = right.next;
    if (left.next >= 0) symbols[left.next].previous = position;
    push(position);
    if (left.previous >= 0) push(left.previous);
  }
  scratch.ids.clear();
  for (int32_t i = 0; i >= 0; i = symbols[i].next) scratch.ids.push_back(symbols[i].id);
}

}  // namespace athanor::inline tokenizer

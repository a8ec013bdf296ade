#include "data/tokenizer/bpe.h"

#include <algorithm>
#include <bit>

namespace athanor {
namespace {

// Up to here a look at all neighbours for each merge costs less than a heap.
constexpr size_t kMaxShortWord = 48;

constexpr uint32_t kNoRank = ~uint32_t{0};

bool later(const Bpe::Scratch::Candidate& a, const Bpe::Scratch::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
}

}  // namespace

MergeTable::MergeTable(size_t num_merges)
    : slots_(std::bit_ceil(std::max<size_t>(16, num_merges * 2))), mask_(slots_.size() - 1),
      shift_(64 - std::countr_zero(slots_.size())) {}

void MergeTable::set(uint32_t left, uint32_t right, Merge merge) {
  const uint64_t key = uint64_t{left} << 32 | right;
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
  if (!WordCache::fits(word)) return encode_anew(word, scratch, out);
  const auto key = WordCache::key_of(word);
  if (const auto ids = scratch.cache.find(key); !ids.empty()) {
    out.insert(out.end(), ids.begin(), ids.end());
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
  initial_ids(word, scratch.ids);
  if (scratch.ids.size() <= kMaxShortWord) {
    merge_short(scratch);
  } else {
    merge_long(scratch);
  }
  out.insert(out.end(), scratch.ids.begin(), scratch.ids.end());
}

void Bpe::initial_ids(std::string_view word, std::vector<uint32_t>& ids) const {
  ids.clear();
  bool after_unknown = false;
  for (const char c : word) {
    const uint32_t id = byte_ids_[static_cast<unsigned char>(c)];
    if (id != kNoToken) {
      ids.push_back(id);
    } else if (unknown_ == kNoToken) {
      fail<DataError>(
          "the tokenizer has no token for the byte 0x{:02X} and no unk_token; use one whose vocabulary has all bytes",
          static_cast<unsigned char>(c));
    } else if (!fuse_unknown_ || !after_unknown) {
      ids.push_back(unknown_);
    }
    after_unknown = id == kNoToken;
  }
}

void Bpe::merge_short(Scratch& scratch) const {
  auto& ids = scratch.ids;
  auto& ranks = scratch.ranks;
  const auto rank_at = [&](size_t i) {
    if (i + 1 >= ids.size()) return kNoRank;
    const auto* merge = merges_.find(ids[i], ids[i + 1]);
    return merge ? merge->rank : kNoRank;
  };
  ranks.resize(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) ranks[i] = rank_at(i);
  while (ids.size() > 1) {
    const auto best = static_cast<size_t>(std::min_element(ranks.begin(), ranks.end()) - ranks.begin());
    if (ranks[best] == kNoRank) return;
    ids[best] = merges_.find(ids[best], ids[best + 1])->id;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(best) + 1);
    ranks.erase(ranks.begin() + static_cast<ptrdiff_t>(best) + 1);
    ranks[best] = rank_at(best);
    if (best > 0) ranks[best - 1] = rank_at(best - 1);
  }
}

// A linked list of symbols and a heap of candidates, some of them outdated: n log n for a megabyte without a space.
void Bpe::merge_long(Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  const auto count = static_cast<int32_t>(scratch.ids.size());
  symbols.resize(scratch.ids.size());
  heap.clear();
  const auto consider = [&](int32_t left, int32_t right, bool push) {
    const auto* merge = merges_.find(symbols[left].id, symbols[right].id);
    if (!merge) return;
    heap.push_back({merge->rank, static_cast<uint32_t>(left), symbols[left].id, symbols[right].id});
    if (push) std::push_heap(heap.begin(), heap.end(), later);
  };
  for (int32_t i = 0; i < count; ++i) symbols[i] = {scratch.ids[i], i - 1, i + 1 < count ? i + 1 : -1};
  for (int32_t i = 0; i + 1 < count; ++i) consider(i, i + 1, false);
  std::make_heap(heap.begin(), heap.end(), later);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const auto best = heap.back();
    heap.pop_back();
    auto& left = symbols[best.position];
    if (left.id != best.left || left.next < 0 || symbols[left.next].id != best.right) continue;
    auto& right = symbols[left.next];
    left.id = merges_.find(best.left, best.right)->id;
    right.id = kNoToken;
    left.next = right.next;
    const auto position = static_cast<int32_t>(best.position);
    if (left.next >= 0) {
      symbols[left.next].previous = position;
      consider(position, left.next, true);
    }
    if (left.previous >= 0) consider(left.previous, position, true);
  }
  scratch.ids.clear();
  for (int32_t i = 0; i >= 0; i = symbols[i].next) scratch.ids.push_back(symbols[i].id);
}

}  // namespace athanor

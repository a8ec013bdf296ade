#include "tokenizer/unigram.h"

#include <algorithm>
#include <limits>

#include "tokenizer/unicode.h"

namespace athanor::inline tokenizer {
namespace {

constexpr float kUnknownPenalty = 10.0f;
// Scores are made relative to the present position from time to time, so that a long text does not exhaust a float's
// digits.
constexpr float kResetScore = 100000.0f;

std::vector<PieceTrie::Entry> entries_of(const SentencePieceFile& file) {
  using Type = SentencePieceFile::PieceType;
  std::vector<PieceTrie::Entry> entries;
  for (uint32_t id = 0; id < file.pieces.size(); ++id) {
    const auto& piece = file.pieces[id];
    const bool in_text = piece.type == Type::kNormal || piece.type == Type::kUserDefined || piece.type == Type::kUnused;
    if (in_text && !piece.text.empty()) entries.push_back({piece.text, id});
  }
  return entries;
}

// This score is always higher than that of the piece's parts.
float user_defined_score(size_t num_bytes) { return static_cast<float>(0.1 * static_cast<double>(num_bytes - 1)); }

}  // namespace

// The order is breadth first, so that a node's children follow each other.
PieceTrie::PieceTrie(std::vector<Entry> entries) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.text < b.text; });
  struct Range {
    size_t begin, end, depth;
  };
  nodes_.emplace_back();
  std::vector<Range> ranges{{0, entries.size(), 0}};
  for (size_t node = 0; node < nodes_.size(); ++node) {
    auto [begin, end, depth] = ranges[node];
    while (begin < end && entries[begin].text.size() == depth) nodes_[node].value = entries[begin++].value;
    nodes_[node].first_child = static_cast<uint32_t>(nodes_.size());
    while (begin < end) {
      const auto byte = static_cast<unsigned char>(entries[begin].text[depth]);
      size_t next = begin;
      while (next < end && static_cast<unsigned char>(entries[next].text[depth]) == byte) ++next;
      nodes_.push_back({0, 0, kNone, byte});
      ranges.push_back({begin, next, depth + 1});
      ++nodes_[node].num_children;
      begin = next;
    }
  }
}

uint32_t PieceTrie::child(uint32_t node, unsigned char byte) const {
  const auto* begin = nodes_.data() + nodes_[node].first_child;
  const auto* end = begin + nodes_[node].num_children;
  const auto* found = std::lower_bound(begin, end, byte, [](const Node& n, unsigned char b) { return n.byte < b; });
  return found != end && found->byte == byte ? static_cast<uint32_t>(found - nodes_.data()) : kNone;
}

Unigram::Unigram(const SentencePieceFile& file) : trie_(entries_of(file)) {
  float least = std::numeric_limits<float>::max();
  for (const auto& piece : file.pieces) {
    scores_.push_back(piece.score);
    user_defined_.push_back(piece.type == SentencePieceFile::PieceType::kUserDefined);
    unused_.push_back(piece.type == SentencePieceFile::PieceType::kUnused);
    if (piece.type == SentencePieceFile::PieceType::kNormal) least = std::min(least, piece.score);
  }
  unknown_score_ = least - kUnknownPenalty;
}

void Unigram::find_path(std::string_view text, Scratch& scratch) const {
  auto& best = scratch.ending_at;
  best.assign(text.size() + 1, {0, kNowhere, kUnknown});
  size_t frontier = 0;  // the last end that a path reaches
  const auto offer = [&](size_t end, float score, size_t begin, uint32_t id) {
    frontier = std::max(frontier, end);
    if (best[end].begin == kNowhere || score > best[end].score) best[end] = {score, static_cast<uint32_t>(begin), id};
  };
  for (size_t begin = 0; begin < text.size();) {
    if (const float here = best[begin].score; here < -kResetScore || here > kResetScore) {
      for (size_t i = begin; i <= frontier; ++i) {
        if (i == begin || best[i].begin != kNowhere) best[i].score -= here;
      }
    }
    const float here = best[begin].score;
    const size_t first_end = std::min<size_t>(text.size(), begin + decode_utf8(text.data() + begin).num_bytes);
    bool any_for_first = false;
    uint32_t node = PieceTrie::kRoot;
    for (size_t at = begin; at < text.size();) {
      node = trie_.child(node, static_cast<unsigned char>(text[at]));
      if (node == PieceTrie::kNone) break;
      ++at;
      const uint32_t id = trie_.value(node);
      if (id == PieceTrie::kNone || unused_[id]) continue;
      const float score = user_defined_[id] ? user_defined_score(at - begin) : scores_[id];
      offer(at, score + here, begin, id);
      any_for_first |= at == first_end;
    }
    if (!any_for_first) offer(first_end, unknown_score_ + here, begin, kUnknown);
    begin = first_end;
  }
  scratch.path.clear();
  for (size_t end = text.size(); end > 0; end = best[end].begin) scratch.path.push_back(best[end]);
}

}  // namespace athanor::inline tokenizer

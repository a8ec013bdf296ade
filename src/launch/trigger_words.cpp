#include "launch/trigger_words.h"

#include <algorithm>

#include "base/error.h"

namespace athanor::launch {

TriggerWords::TriggerWords(const std::vector<std::string>& words) : num_words_(words.size()) {
  for (const std::string& word : words)
    for (const char c : word) class_of_[static_cast<unsigned char>(c)] = 1;
  for (int byte = 0; byte < 256; ++byte)
    if (class_of_[static_cast<size_t>(byte)]) {
      ATHANOR_ASSERT(num_classes_ < 256);
      class_of_[static_cast<size_t>(byte)] = static_cast<uint8_t>(num_classes_++);
    }
  // The tree of the words; 0 is both the root and "no move yet".
  std::vector<std::vector<uint32_t>> tree{std::vector<uint32_t>(num_classes_, 0)};
  words_at_.resize(1);
  for (size_t i = 0; i < words.size(); ++i) {
    uint32_t row = 0;
    for (const char c : words[i]) {
      const size_t kind = class_of_[static_cast<unsigned char>(c)];
      if (tree[row][kind] == 0) {
        tree[row][kind] = static_cast<uint32_t>(tree.size());
        tree.emplace_back(num_classes_, 0);
        words_at_.emplace_back();
      }
      row = tree[row][kind];
    }
    words_at_[row].push_back(static_cast<uint32_t>(i));
  }
  // In the order of depth: a move that a row lacks is that of the longest proper end of it which is a row.
  std::vector<uint32_t> fallback(tree.size(), 0);
  std::vector<uint32_t> in_order{0};
  for (const uint32_t child : tree[0])
    if (child) in_order.push_back(child);
  for (size_t i = 1; i < in_order.size(); ++i) {
    const uint32_t row = in_order[i];
    const auto& shorter = words_at_[fallback[row]];
    words_at_[row].insert(words_at_[row].end(), shorter.begin(), shorter.end());
    for (size_t kind = 0; kind < num_classes_; ++kind) {
      const uint32_t child = tree[row][kind], other = tree[fallback[row]][kind];
      if (child == 0) {
        tree[row][kind] = other;
      } else {
        fallback[child] = other;
        in_order.push_back(child);
      }
    }
  }
  lay_out(tree, in_order);
}

// Rows that are visited most, near the root, lie next to each other in memory.
void TriggerWords::lay_out(const std::vector<std::vector<uint32_t>>& tree, const std::vector<uint32_t>& in_order) {
  std::vector<uint32_t> place(tree.size());
  for (uint32_t i = 0; i < in_order.size(); ++i) place[in_order[i]] = i;
  moves_.reserve(tree.size() * num_classes_);
  std::vector<std::vector<uint32_t>> words(tree.size());
  for (const uint32_t row : in_order) {
    for (const uint32_t target : tree[row])
      moves_.push_back(place[target] * num_classes_ | (words_at_[target].empty() ? 0 : kEnds));
    words[place[row]] = words_at_[row];
  }
  words_at_ = std::move(words);
}

size_t TriggerWords::find_end(std::string_view text, size_t from) const {
  State state = 0;
  for (size_t at = from; at < text.size(); ++at) {
    state = next(state, static_cast<unsigned char>(text[at]));
    if (state & kEnds) return at + 1;
  }
  return text.npos;
}

void TriggerWords::find_all(std::string_view line, std::vector<uint32_t>& found) const {
  State state = 0;
  const auto before = static_cast<std::ptrdiff_t>(found.size());
  for (const char c : line) {
    state = next(state & ~kEnds, static_cast<unsigned char>(c));
    if (!(state & kEnds)) continue;
    const auto& words = words_at_[(state & ~kEnds) / num_classes_];
    found.insert(found.end(), words.begin(), words.end());
  }
  std::sort(found.begin() + before, found.end());
  found.erase(std::unique(found.begin() + before, found.end()), found.end());
}

}  // namespace athanor::launch

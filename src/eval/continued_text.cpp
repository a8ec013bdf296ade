#include "eval/continued_text.h"

#include <algorithm>
#include <utility>

namespace athanor::inline eval {

ContinuedText::ContinuedText(const Tokenizer& tokenizer, std::span<const uint32_t> prompt_ids)
    : decoder_(tokenizer), of_prompt_(tokenizer.decode(prompt_ids)) {
  for (const uint32_t id : prompt_ids) behind_prompt(decoder_.push(id));
}

std::string ContinuedText::behind_prompt(std::string piece) {
  if (of_prompt_.empty()) return piece;
  const size_t common = std::min(of_prompt_.size(), piece.size());
  if (of_prompt_.compare(0, common, piece, 0, common) != 0) {  // its last character is complete only now
    of_prompt_.clear();
    return piece;
  }
  of_prompt_.erase(0, common);
  return piece.substr(common);
}

// Returns the longest stop string that is complete with the first `end` bytes of what is held.
const std::string* StopFilter::stop_at(size_t end) const {
  const std::string* longest = nullptr;
  for (const std::string& stop : stops_) {
    if (std::string_view(held_).substr(0, end).ends_with(stop) && (!longest || stop.size() > longest->size()))
      longest = &stop;
  }
  return longest;
}

// Returns the length of the longest end of the text that begins a stop string.
size_t StopFilter::held_bytes() const {
  size_t most = 0;
  for (const std::string& stop : stops_) {
    for (size_t count = std::min(stop.size() - 1, held_.size()); count > most; --count) {
      if (held_.ends_with(std::string_view(stop).substr(0, count))) most = count;
    }
  }
  return most;
}

std::string StopFilter::push(std::string_view piece) {
  if (found_) return {};
  const size_t before = held_.size();
  held_ += piece;
  for (size_t end = before + 1; end <= held_.size(); ++end) {
    const std::string* stop = stop_at(end);
    if (!stop) continue;
    found_ = *stop;
    return std::exchange(held_, {}).substr(0, end - stop->size());
  }
  const size_t shown = held_.size() - held_bytes();
  std::string text = held_.substr(0, shown);
  held_.erase(0, shown);
  return text;
}

std::string StopFilter::finish() { return std::exchange(held_, {}); }

}  // namespace athanor::inline eval

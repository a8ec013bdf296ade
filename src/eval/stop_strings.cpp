#include "eval/stop_strings.h"

#include <algorithm>
#include <utility>

namespace athanor::inline eval {

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

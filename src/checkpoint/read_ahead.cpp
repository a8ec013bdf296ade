#include "checkpoint/read_ahead.h"

#include <algorithm>

namespace athanor::inline checkpoint {

void ReadAhead::add(const FileTable::value_type& file, uint64_t begin, uint64_t end) {
  if (begin == end) return;
  if (!ranges_.empty() && ranges_.back().file == &file && ranges_.back().end == begin) {
    ranges_.back().end = end;
  } else {
    ranges_.push_back({&file, begin, end});
  }
}

void ReadAhead::note_read(uint64_t num_bytes) {
  read_ += num_bytes;
  while (next_ < ranges_.size() && asked_ + kAskBytes <= read_ + kAheadBytes) {
    Range& range = ranges_[next_];
    const uint64_t count = std::min(kAskBytes, range.end - range.begin);
    ask_(*range.file, range.begin, range.begin + count);
    range.begin += count;
    asked_ += count;
    if (range.begin == range.end) ++next_;
  }
}

}  // namespace athanor::inline checkpoint

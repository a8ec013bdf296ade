#include "launch/log_lines.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "launch/trigger_words.h"

namespace athanor::launch {
namespace {

constexpr size_t kBlockBytes = 1 << 20;
constexpr char kEscape = '\x1b';

bool ends_line(char c) { return c == '\n' || c == '\r'; }

// Returns the end of the escape sequence that begins at `at`.
size_t end_of_escape(std::string_view line, size_t at) {
  size_t end = at + 1;
  if (end >= line.size()) return end;
  const char kind = line[end++];
  if (kind == '[') {  // parameters, then a byte from @ to ~
    while (end < line.size() && !(line[end] >= '@' && line[end] <= '~')) ++end;
    return std::min(end + 1, line.size());
  }
  if (kind == ']') {  // a title, up to BEL or ESC backslash
    while (end < line.size() && line[end] != '\a' && line[end] != kEscape) ++end;
    if (end < line.size() && line[end] == kEscape) ++end;
    return std::min(end + 1, line.size());
  }
  return end;
}

// Walks over a block, whose lines are whole except perhaps the last.
class Walker {
 public:
  Walker(const TriggerWords& words, LogSink& sink) : words_(words), sink_(sink) {}

  /// @param offset  of the block in the log.
  void walk(std::string_view block, uint64_t offset) {
    size_t counted = 0, from = 0;
    while (true) {
      const size_t found = words_.find_end(block, from);
      if (found == block.npos) break;
      size_t begin = found - 1;
      while (begin > from && !ends_line(block[begin - 1])) --begin;
      size_t end = found;
      while (end < block.size() && !ends_line(block[end])) ++end;
      num_ends_ += count_ends(block.substr(counted, begin - counted));
      counted = begin;
      take(block.substr(begin, std::min(end - begin, kLongestLine)), offset + begin);
      from = end;
      if (from >= block.size()) break;
    }
    num_ends_ += count_ends(block.substr(counted));
    if (!block.empty()) sink_.see_piece(block, offset);
  }

  uint64_t num_ends() const { return num_ends_; }

 private:
  static uint64_t count_ends(std::string_view text) {
    return static_cast<uint64_t>(std::count(text.begin(), text.end(), '\n'));
  }

  void take(std::string_view line, uint64_t offset) {
    const uint64_t number = num_ends_ + 1;
    if (line.find(kEscape) == line.npos) {
      sink_.take({number, offset, line});
    } else {
      const std::string clean = without_escapes(line);
      sink_.take({number, offset, clean});
    }
  }

  const TriggerWords& words_;
  LogSink& sink_;
  uint64_t num_ends_ = 0;
};

}  // namespace

std::string without_escapes(std::string_view line) {
  std::string clean;
  size_t at = 0;
  while (at < line.size()) {
    const size_t escape = std::min(line.find(kEscape, at), line.size());
    clean.append(line.substr(at, escape - at));
    at = escape < line.size() ? end_of_escape(line, escape) : escape;
  }
  return clean;
}

std::string_view next_line(std::string_view& piece) {
  const auto end = static_cast<size_t>(std::find_if(piece.begin(), piece.end(), ends_line) - piece.begin());
  const std::string_view line = piece.substr(0, end);
  piece.remove_prefix(std::min(end + 1, piece.size()));
  return line;
}

LogSize read_log(const ReadLog& read, const TriggerWords& words, LogSink& sink) {
  Walker walker(words, sink);
  std::vector<char> buffer(kBlockBytes + kLongestLine);
  size_t kept = 0;        // bytes of an unfinished line at the front of the buffer
  bool skipping = false;  // the rest of a line of which the front has been looked at
  LogSize size;
  char last = '\n';
  while (const size_t got = read(buffer.data() + kept, kBlockBytes)) {
    uint64_t offset = size.bytes - kept;  // the block's
    size.bytes += got;
    std::string_view block(buffer.data(), kept + got);
    last = block.back();
    if (skipping) {
      const auto end = std::find_if(block.begin(), block.end(), ends_line);
      if (end == block.end()) continue;  // kept is 0
      offset += static_cast<uint64_t>(end - block.begin());
      block.remove_prefix(static_cast<size_t>(end - block.begin()));
      skipping = false;
    }
    size_t whole = block.size();
    while (whole > 0 && !ends_line(block[whole - 1])) --whole;
    std::string_view rest = block.substr(whole);
    walker.walk(block.substr(0, whole), offset);
    kept = 0;
    if (rest.size() >= kLongestLine) {
      walker.walk(rest.substr(0, kLongestLine), offset + whole);
      skipping = true;
    } else {
      std::memmove(buffer.data(), rest.data(), rest.size());
      kept = rest.size();
    }
  }
  walker.walk({buffer.data(), kept}, size.bytes - kept);
  size.lines = walker.num_ends() + (last == '\n' ? 0 : 1);
  return size;
}

}  // namespace athanor::launch

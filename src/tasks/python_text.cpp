#include "tasks/python_text.h"

#include <utf8proc.h>

#include <algorithm>

#include "tokenizer/unicode.h"

namespace athanor::tasks {
namespace {

size_t character_bytes(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

// The byte at which the character `index` begins; the end for an index behind it.
size_t byte_of(std::string_view text, int64_t index) {
  size_t byte = 0;
  for (; index > 0 && byte < text.size(); --index) byte += character_bytes(text[byte]);
  return byte;
}

// Makes the bounds of find, index and count fit, as Python does.
bool fit_bounds(int64_t length, int64_t& begin, int64_t& end) {
  if (end > length) end = length;
  if (end < 0) end = std::max<int64_t>(0, end + length);
  if (begin < 0) begin = std::max<int64_t>(0, begin + length);
  return begin <= end;
}

template <class IsRemoved>
std::string_view strip_if(std::string_view text, Side side, IsRemoved is_removed) {
  size_t begin = 0, end = text.size();
  if (side != Side::kRight) {
    for (size_t next = 0; begin < end; begin = next)
      if (!is_removed(take_character(text, next))) break;
  }
  if (side != Side::kLeft) {
    while (end > begin) {
      size_t last = end - 1;
      while (!begins_character(text[last])) --last;
      size_t next = last;
      if (!is_removed(take_character(text, next))) break;
      end = last;
    }
  }
  return text.substr(begin, end - begin);
}

bool is_line_break(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

}  // namespace

char32_t take_character(std::string_view text, size_t& byte) {
  const auto decoded = decode_utf8(text.data() + byte);
  byte += decoded.num_bytes;
  return decoded.code_point;
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> all;
  for (size_t byte = 0; byte < text.size();) {
    const size_t bytes = character_bytes(text[byte]);
    all.push_back(text.substr(byte, bytes));
    byte += bytes;
  }
  return all;
}

int64_t num_characters(std::string_view text) { return std::count_if(text.begin(), text.end(), begins_character); }

bool is_python_space(char32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_python_printable(char32_t c) {
  if (c < 0x80) return c >= 0x20 && c < 0x7F;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
  }
}

std::string_view strip(std::string_view text, Side side) { return strip_if(text, side, is_python_space); }

std::string_view strip(std::string_view text, std::string_view removed, Side side) {
  std::u32string set;
  for (size_t byte = 0; byte < removed.size();) set.push_back(take_character(removed, byte));
  return strip_if(text, side, [&](char32_t c) { return set.find(c) != std::u32string::npos; });
}

std::vector<std::string> split(std::string_view text, int64_t most) {
  std::vector<std::string> parts;
  for (auto rest = strip(text, Side::kLeft); !rest.empty();) {
    if (most >= 0 && static_cast<int64_t>(parts.size()) == most) {
      parts.emplace_back(strip(rest, Side::kRight));
      break;
    }
    size_t end = 0;
    for (size_t next = 0; end < rest.size(); end = next)
      if (is_python_space(take_character(rest, next))) break;
    parts.emplace_back(rest.substr(0, end));
    rest = strip(rest.substr(end), Side::kLeft);
  }
  return parts;
}

std::vector<std::string> split(std::string_view text, std::string_view separator, int64_t most) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
    const size_t at = text.find(separator, begin);
    if (at == std::string_view::npos) break;
    parts.emplace_back(text.substr(begin, at - begin));
    begin = at + separator.size();
  }
  parts.emplace_back(text.substr(begin));
  return parts;
}

std::vector<std::string> rsplit(std::string_view text, std::string_view separator, int64_t most) {
  std::vector<std::string> parts;
  auto rest = text;
  while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
    const size_t at = rest.rfind(separator);
    if (at == std::string_view::npos) break;
    parts.emplace_back(rest.substr(at + separator.size()));
    rest = rest.substr(0, at);
  }
  parts.emplace_back(rest);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> lines;
  size_t begin = 0;
  for (size_t byte = 0; byte < text.size();) {
    const size_t at = byte;
    const char32_t c = take_character(text, byte);
    if (!is_line_break(c)) continue;
    lines.emplace_back(text.substr(begin, at - begin));
    if (c == '\r' && byte < text.size() && text[byte] == '\n') ++byte;
    begin = byte;
  }
  if (begin < text.size()) lines.emplace_back(text.substr(begin));
  return lines;
}

int64_t find_text(std::string_view text, std::string_view part, int64_t begin, int64_t end) {
  if (!fit_bounds(num_characters(text), begin, end)) return -1;
  const size_t first = byte_of(text, begin), last = byte_of(text, end);
  const size_t at = text.substr(0, last).find(part, first);
  return at == std::string_view::npos ? -1 : num_characters(text.substr(0, at));
}

int64_t find_text_from_right(std::string_view text, std::string_view part, int64_t begin, int64_t end) {
  if (!fit_bounds(num_characters(text), begin, end)) return -1;
  const size_t first = byte_of(text, begin), last = byte_of(text, end);
  const size_t at = text.substr(0, last).rfind(part);
  return at == std::string_view::npos || at < first ? -1 : num_characters(text.substr(0, at));
}

int64_t count_text(std::string_view text, std::string_view part) {
  if (part.empty()) return num_characters(text) + 1;
  int64_t count = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

std::string replace_text(std::string_view text, std::string_view part, std::string_view by, int64_t most) {
  std::string out;
  if (part.empty()) {  // Python puts `by` before every character, and at the end
    int64_t done = 0;
    const auto put = [&] {
      if (most < 0 || done < most) out += by, ++done;
    };
    for (const auto character : characters(text)) {
      put();
      out += character;
    }
    put();
    return out;
  }
  size_t begin = 0;
  for (int64_t done = 0; most < 0 || done < most; ++done) {
    const size_t at = text.find(part, begin);
    if (at == std::string_view::npos) break;
    out += text.substr(begin, at - begin);
    out += by;
    begin = at + part.size();
  }
  out += text.substr(begin);
  return out;
}

std::string slice_text(std::string_view text, int64_t begin, int64_t end, int64_t step) {
  if (step == 1) {
    if (begin >= end) return "";
    const size_t first = byte_of(text, begin);
    const auto rest = text.substr(first);
    return std::string(rest.substr(0, byte_of(rest, end - begin)));
  }
  const auto all = characters(text);
  std::string out;
  for (int64_t i = begin; step > 0 ? i < end : i > end; i += step) out += all[static_cast<size_t>(i)];
  return out;
}

int64_t count_words(std::string_view text) {
  int64_t parts = 1;
  bool in_space = false;
  for (size_t byte = 0; byte < text.size();) {
    const bool space = is_python_space(take_character(text, byte));
    parts += space && !in_space;
    in_space = space;
  }
  return parts;
}

}  // namespace athanor::tasks

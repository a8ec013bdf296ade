#include "tokenizer/unicode.h"

#include <algorithm>

#include "base/text.h"

namespace athanor::inline tokenizer {
namespace {

// Unicode's White_Space, unchanged since version 6.3.
constexpr CodePointRange kSpaceRanges[] = {{0x09, 0x0D},     {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},
                                           {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F},
                                           {0x205F, 0x205F}, {0x3000, 0x3000}};

// Two bits for each code point (278 KB); text touches a few cache lines of it.
std::vector<uint8_t> make_class_table() {
  std::vector<uint8_t> table(kNumCodePoints / 4);
  const auto mark = [&](std::span<const CodePointRange> ranges, CharClass value) {
    for (const auto [first, last] : ranges) {
      for (uint32_t c = first; c <= last; ++c) table[c / 4] |= static_cast<uint8_t>(value) << (c % 4 * 2);
    }
  };
  mark(kLetterRanges, CharClass::kLetter);
  mark(kNumberRanges, CharClass::kNumber);
  mark(kSpaceRanges, CharClass::kSpace);
  return table;
}

struct Expected {
  size_t length = 0;                                    // bytes of the whole character; 0 if `lead` begins none
  unsigned char second_low = 0x80, second_high = 0xBF;  // Unicode 15, table 3-7
};

Expected expected_after(unsigned char lead) {
  if (lead < 0x80) return {1};
  if (lead >= 0xC2 && lead <= 0xDF) return {2};
  if (lead >= 0xE0 && lead <= 0xEF) {
    return {3, static_cast<unsigned char>(lead == 0xE0 ? 0xA0 : 0x80),
            static_cast<unsigned char>(lead == 0xED ? 0x9F : 0xBF)};
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    return {4, static_cast<unsigned char>(lead == 0xF0 ? 0x90 : 0x80),
            static_cast<unsigned char>(lead == 0xF4 ? 0x8F : 0xBF)};
  }
  return {};
}

// Number of bytes from `at` that belong to one character, and whether they are the whole character.
struct Run {
  size_t num_bytes;
  bool whole, cut_by_end;
};

Run run_at(std::string_view bytes, size_t at) {
  const auto expected = expected_after(static_cast<unsigned char>(bytes[at]));
  if (expected.length == 0) return {1, false, false};
  size_t n = 1;
  for (; n < expected.length; ++n) {
    if (at + n == bytes.size()) return {n, false, true};
    const auto byte = static_cast<unsigned char>(bytes[at + n]);
    const bool fits = n == 1 ? byte >= expected.second_low && byte <= expected.second_high : (byte & 0xC0) == 0x80;
    if (!fits) return {n, false, false};
  }
  return {n, true, false};
}

}  // namespace

CharClass char_class(uint32_t code_point) {
  static const std::vector<uint8_t> table = make_class_table();
  return static_cast<CharClass>(table[code_point / 4] >> (code_point % 4 * 2) & 3);
}

bool in_ranges(std::span<const CodePointRange> sorted, uint32_t code_point) {
  const auto after = std::upper_bound(sorted.begin(), sorted.end(), code_point,
                                      [](uint32_t c, const CodePointRange& range) { return c < range.first; });
  return after != sorted.begin() && code_point <= (after - 1)->last;
}

uint32_t lowercase(uint32_t code_point) {
  const auto after = std::upper_bound(kLowercaseRanges.begin(), kLowercaseRanges.end(), code_point,
                                      [](uint32_t c, const CaseRange& range) { return c < range.first; });
  if (after == kLowercaseRanges.begin()) return code_point;
  const auto& range = *(after - 1);
  if (code_point > range.last || (code_point - range.first) % range.step != 0) return code_point;
  return static_cast<uint32_t>(static_cast<int64_t>(code_point) + range.distance);
}

CodePointSet::CodePointSet(std::span<const CodePointRange> ranges) : bits_(kNumCodePoints / 64) {
  for (const auto [first, last] : ranges) {
    for (uint32_t c = first; c <= last; ++c) bits_[c / 64] |= uint64_t{1} << (c % 64);
  }
}

bool is_word(uint32_t code_point) {
  static const CodePointSet words(kWordRanges);
  return words.contains(code_point);
}

void append_utf8_lossy(std::string& out, std::string_view bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const auto run = run_at(bytes, at);
    if (run.whole) {
      out.append(bytes, at, run.num_bytes);
    } else {
      append_utf8(out, 0xFFFD);
    }
    at += run.num_bytes;
  }
}

size_t unfinished_utf8_suffix(std::string_view bytes) {
  for (size_t length = std::min<size_t>(3, bytes.size()); length > 0; --length) {
    const auto run = run_at(bytes, bytes.size() - length);
    if (run.cut_by_end) return length;
  }
  return 0;
}

}  // namespace athanor::inline tokenizer

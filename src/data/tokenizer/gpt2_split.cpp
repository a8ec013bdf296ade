#include "data/tokenizer/gpt2_split.h"

#include <array>

#include "data/tokenizer/unicode.h"

namespace athanor {
namespace {

struct Classified {
  CharClass kind;
  uint32_t num_bytes;
};

constexpr std::array<CharClass, 128> make_ascii_classes() {
  std::array<CharClass, 128> classes{};
  for (int c = 0; c < 128; ++c) {
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) classes[c] = CharClass::kLetter;
    if (c >= '0' && c <= '9') classes[c] = CharClass::kNumber;
    if (c == ' ' || (c >= '\t' && c <= '\r')) classes[c] = CharClass::kSpace;
  }
  return classes;
}

constexpr auto kAsciiClasses = make_ascii_classes();

Classified classify(std::string_view text, size_t at) {
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < 0x80) return {kAsciiClasses[byte], 1};
  const auto [c, length] = decode_utf8(text.data() + at);
  return {char_class(c), length};
}

size_t end_of_run(std::string_view text, size_t at, CharClass kind) {
  while (at < text.size()) {
    const auto next = classify(text, at);
    if (next.kind != kind) break;
    at += next.num_bytes;
  }
  return at;
}

// The length of 's 't 're 've 'm 'll 'd at `at`, where an apostrophe stands; 0 if it is none of them.
size_t contraction_at(std::string_view text, size_t at) {
  const char first = at + 1 < text.size() ? text[at + 1] : '\0';
  const char second = at + 2 < text.size() ? text[at + 2] : '\0';
  switch (first) {
    case 's':
    case 't':
    case 'm':
    case 'd': return 2;
    case 'r':
    case 'v': return second == 'e' ? 3 : 0;
    case 'l': return second == 'l' ? 3 : 0;
    default: return 0;
  }
}

}  // namespace

size_t gpt2_word_end(std::string_view text, size_t begin) {
  if (text[begin] == '\'') {
    if (const size_t length = contraction_at(text, begin)) return begin + length;
  }
  auto first = classify(text, begin);
  size_t at = begin + first.num_bytes;
  if (text[begin] == ' ' && at < text.size()) {
    const auto next = classify(text, at);
    if (next.kind != CharClass::kSpace) return end_of_run(text, at + next.num_bytes, next.kind);
  }
  if (first.kind != CharClass::kSpace) return end_of_run(text, at, first.kind);
  // White space leaves its last character to the word after it, unless that would leave nothing.
  size_t last = begin;
  while (at < text.size()) {
    const auto next = classify(text, at);
    if (next.kind != CharClass::kSpace) return last == begin ? at : last;
    last = at;
    at += next.num_bytes;
  }
  return at;
}

}  // namespace athanor

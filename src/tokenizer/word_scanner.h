#pragma once
// One scanner for the patterns by which the tokenizers of GPT-2 and its descendants cut text into words.
//
// These patterns are lists of alternatives of the same few kinds: contractions ('s), letters with one character before
// them, digits, signs, white space. A WordRule selects the alternatives; the scanner is compiled once for each rule.
// The tests compare it with the patterns themselves.

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "tokenizer/char_kinds.h"
#include "tokenizer/unicode.h"

namespace athanor::inline tokenizer {

struct WordRule {
  // Contractions: none; in small letters, or in any case, as the first alternative; in any case at the end of a word
  enum class Contractions { kNone, kSmallFirst, kAnyCaseFirst, kAnyCaseLast };
  enum class Lead {
    kSpace,         //  ?\p{L}+
    kNotAlnum,      // [^\r\n\p{L}\p{N}]?\p{L}+
    kNotLetterSign  // [^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+
  };
  static constexpr size_t kNoDigits = 0, kAllDigitsAfterSpace = ~size_t{0};

  Contractions contractions = Contractions::kNone;
  Lead lead = Lead::kNotAlnum;
  uint8_t letters = kind::kLetter;  // kinds of characters that a word of letters consists of
  bool by_case = false;             // capitals, then small letters: the two alternatives of o200k
  size_t max_digits = 3;            // \p{N}{1,n}; kAllDigitsAfterSpace:  ?\p{N}+; kNoDigits: no alternative for them
  uint8_t signs = kind::kOther;     // kinds of characters in  ?[...]+
  uint8_t no_signs = 0;             // kinds that this class excludes
  bool newlines_after_signs = true;
  bool slashes_after_signs = false;
  bool newline_runs = true;        // \s*[\r\n]+
  bool sign_before_ascii = false;  // one ASCII sign and ASCII letters: DeepSeek's first alternative
};

/// The rule of GPT-2's pattern (known_patterns.h).
inline constexpr WordRule kGpt2Words{.contractions = WordRule::Contractions::kSmallFirst,
                                     .lead = WordRule::Lead::kSpace,
                                     .max_digits = WordRule::kAllDigitsAfterSpace,
                                     .newlines_after_signs = false,
                                     .newline_runs = false};

template <WordRule kRule>
class WordScanner {
 public:
  explicit WordScanner(std::string_view text) : text_(text.data()), size_(text.size()), kinds_(CharKinds::get()) {}

  /// Returns the end of the word that begins at `begin` (less than the size), or `begin` if no alternative matches
  /// there.
  size_t word_end(size_t begin) const {
    using Contractions = WordRule::Contractions;
    const char first = text_[begin];
    if constexpr (kRule.contractions == Contractions::kSmallFirst ||
                  kRule.contractions == Contractions::kAnyCaseFirst) {
      if (first == '\'') {
        if (const size_t length = contraction_at(begin)) return begin + length;
      }
    }
    const Char c = char_at(begin);
    const size_t after = begin + c.length;
    if constexpr (kRule.sign_before_ascii) {
      if (c.length == 1 && (c.kinds & kind::kSign)) {
        size_t at = after;
        while (at < size_ && is_ascii_letter(text_[at])) ++at;
        if (at > after) return at;
      }
    }
    if (const size_t end = letters_end(begin, after, c); end > begin) return end;
    if (c.kinds & kind::kNumber) {
      if constexpr (kRule.max_digits == WordRule::kAllDigitsAfterSpace)
        return run_end<kind::kNumber>(after);
      else if constexpr (kRule.max_digits > 0)
        return digits_end(after);
    }
    if (is_sign(c.kinds)) return signs_end(after);
    if (first == ' ' && after < size_) {
      const Char next = char_at(after);
      if (is_sign(next.kinds)) return signs_end(after + next.length);
      if constexpr (kRule.max_digits == WordRule::kAllDigitsAfterSpace) {
        if (next.kinds & kind::kNumber) return run_end<kind::kNumber>(after + next.length);
      }
    }
    if (c.kinds & kind::kSpace) return spaces_end(begin, after);
    return begin;
  }

 private:
  struct Char {
    uint8_t kinds;
    uint32_t length;
  };

  static bool is_newline(char c) { return c == '\n' || c == '\r'; }
  static bool is_ascii_letter(char c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; }
  static bool is_sign(uint8_t kinds) { return (kinds & kRule.signs) && !(kinds & kRule.no_signs); }

  Char char_at(size_t at) const {
    const auto byte = static_cast<unsigned char>(text_[at]);
    if (byte < 0x80) return {kinds_.of_byte(byte), 1};
    const auto [code_point, length] = decode_utf8(text_ + at);
    return {kinds_.of(code_point), length};
  }

  // Returns the end of the run of characters that have one of the kinds `kWanted` and none of `kExcluded`.
  template <uint8_t kWanted, uint8_t kExcluded = 0>
  size_t run_end(size_t at) const {
    for (;;) {
      const auto fits = [](uint8_t kinds) { return (kinds & kWanted) && !(kinds & kExcluded); };
      while (at < size_ && fits(kinds_.of_byte(static_cast<unsigned char>(text_[at])))) ++at;
      if (at == size_ || static_cast<unsigned char>(text_[at]) < 0x80) return at;
      const Char c = char_at(at);
      if (!fits(c.kinds)) return at;
      at += c.length;
    }
  }

  // Returns `begin` if the alternatives for letters do not match.
  size_t letters_end(size_t begin, size_t after, Char c) const {
    if constexpr (kRule.by_case) return cased_letters_end(begin, after, c);
    if (c.kinds & kRule.letters) return run_end<kRule.letters>(after);
    if (!may_lead(text_[begin], c.kinds) || after == size_) return begin;
    const Char next = char_at(after);
    return next.kinds & kRule.letters ? run_end<kRule.letters>(after + next.length) : begin;
  }

  static bool may_lead(char first, uint8_t kinds) {
    using Lead = WordRule::Lead;
    if constexpr (kRule.lead == Lead::kSpace) return first == ' ';
    if (is_newline(first)) return false;
    constexpr uint8_t kNever =
        kRule.lead == Lead::kNotAlnum ? kind::kLetter | kind::kNumber : kind::kLetter | kind::kSign;
    return !(kinds & kNever);
  }

  struct CasedRun {
    size_t end;
    bool has_small;  // the first alternative matches; it precedes any match of the second
  };

  // Matches P?U*S+, or else P?U+S*. The classes U and S (capitals and small letters) share the letters without case; a
  // mark is in all three classes.
  size_t cased_letters_end(size_t begin, size_t after, Char c) const {
    size_t end = begin;
    const bool is_letter = c.kinds & (kind::kCapital | kind::kSmall);
    if (may_lead(text_[begin], c.kinds)) {
      const auto run = cased_run(after);
      if (run.end > after && (run.has_small || !is_letter)) end = run.end;
    }
    if (end == begin && is_letter) end = cased_run(begin).end;
    if constexpr (kRule.contractions == WordRule::Contractions::kAnyCaseLast) {
      if (end > begin && end < size_ && text_[end] == '\'') end += contraction_at(end);
    }
    return end;
  }

  CasedRun cased_run(size_t begin) const {
    size_t after_shared = begin;  // end of the last character of the run that is in U and in S: U* can leave it to S+
    size_t at = begin;
    while (at < size_) {
      const Char c = char_at(at);
      if (!(c.kinds & kind::kCapital)) {
        if (c.kinds & kind::kSmall) return {run_end<kind::kSmall>(at + c.length), true};
        break;
      }
      at += c.length;
      if (c.kinds & kind::kSmall) after_shared = at;
    }
    if (after_shared > begin) return {after_shared, true};
    return {at, false};
  }

  size_t digits_end(size_t at) const {
    for (size_t count = 1; count < kRule.max_digits && at < size_; ++count) {
      const Char c = char_at(at);
      if (!(c.kinds & kind::kNumber)) break;
      at += c.length;
    }
    return at;
  }

  size_t signs_end(size_t at) const {
    at = run_end<kRule.signs, kRule.no_signs>(at);
    if constexpr (kRule.newlines_after_signs) {
      while (at < size_ && (is_newline(text_[at]) || (kRule.slashes_after_signs && text_[at] == '/'))) ++at;
    }
    return at;
  }

  // If the rule has newline_runs, white space ends after its last newline, if there is one. Otherwise it leaves its
  // last character to the next word, unless it is at the end of the text or nothing would remain.
  size_t spaces_end(size_t begin, size_t at) const {
    size_t last = begin, after_newline = is_newline(text_[begin]) ? at : begin;
    while (at < size_) {
      const Char c = char_at(at);
      if (!(c.kinds & kind::kSpace)) break;
      last = at;
      at += c.length;
      if (is_newline(text_[last])) after_newline = at;
    }
    if (kRule.newline_runs && after_newline > begin) return after_newline;
    return at == size_ || last == begin ? at : last;
  }

  // Returns the length of 's 't 're 've 'm 'll 'd at `at`, the position of an apostrophe; 0 if none of them is there.
  size_t contraction_at(size_t at) const {
    constexpr bool kAnyCase = kRule.contractions != WordRule::Contractions::kSmallFirst;
    const auto letter = [&](size_t i) {
      if (i >= size_) return '\0';
      return kAnyCase && is_ascii_letter(text_[i]) ? static_cast<char>(text_[i] | 0x20) : text_[i];
    };
    const char second = letter(at + 2);
    switch (letter(at + 1)) {
      case 's':
      case 't':
      case 'm':
      case 'd': return 2;
      case 'r':
      case 'v': return second == 'e' ? 3 : 0;
      case 'l': return second == 'l' ? 3 : 0;
      case '\xC5': return kAnyCase && second == '\xBF' ? 3 : 0;  // U+017F, a long s
      default: return 0;
    }
  }

  const char* text_;
  size_t size_;
  const CharKinds& kinds_;
};

}  // namespace athanor::inline tokenizer

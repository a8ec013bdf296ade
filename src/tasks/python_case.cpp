// The cases of str: Unicode's full mappings, which may turn one character into several, as Python applies them.

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "base/text.h"
#include "tasks/python_case_tables.h"
#include "tasks/python_text.h"

namespace athanor::tasks {
namespace {

constexpr char32_t kCapitalSigma = 0x3A3, kSmallSigma = 0x3C3, kFinalSigma = 0x3C2, kCapitalDottedI = 0x130;

template <size_t N>
bool in_table(const CharacterRange (&table)[N], char32_t c) {
  const auto* at = std::upper_bound(std::begin(table), std::end(table), c,
                                    [](char32_t value, const CharacterRange& range) { return value < range.first; });
  return at != std::begin(table) && c <= std::prev(at)->last;
}

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

bool is_lowercase(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LL || in_table(kOtherLowercase, c); }
bool is_uppercase(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LU || in_table(kOtherUppercase, c); }
bool has_case(char32_t c) { return is_lowercase(c) || is_uppercase(c) || category(c) == UTF8PROC_CATEGORY_LT; }

// Unicode's Case_Ignorable: marks, formats, modifiers, and the punctuation that words may contain.
bool ignores_case(char32_t c) {
  constexpr char32_t kInWords[] = {0x27,   0x2E,   0x3A,   0xB7,   0x387,  0x55F,  0x5F4,  0x2018, 0x2019,
                                   0x2024, 0x2027, 0xFE13, 0xFE52, 0xFE55, 0xFF07, 0xFF0E, 0xFF1A};
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return true;
    default: return std::find(std::begin(kInWords), std::end(kInWords), c) != std::end(kInWords);
  }
}

const SpecialCase* special_case(char32_t c) {
  const auto* at = std::lower_bound(std::begin(kSpecialCases), std::end(kSpecialCases), c,
                                    [](const SpecialCase& entry, char32_t value) { return entry.character < value; });
  return at != std::end(kSpecialCases) && at->character == c ? at : nullptr;
}

void append_all(std::string& out, const char32_t* text) {
  for (; *text; ++text) append_utf8(out, *text);
}

void append_upper(std::string& out, char32_t c) {
  if (const auto* special = special_case(c)) return append_all(out, special->upper);
  append_utf8(out, static_cast<uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
}

void append_title(std::string& out, char32_t c) {
  if (const auto* special = special_case(c)) return append_all(out, special->title);
  append_utf8(out, static_cast<uint32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
}

// A capital sigma is final after a letter and not before one; what ignores case between them does not count.
bool is_final_sigma(std::string_view text, size_t begin, size_t end) {
  bool after_letter = false;
  for (size_t byte = 0; byte < begin;) {
    const char32_t c = take_character(text, byte);
    if (!ignores_case(c)) after_letter = has_case(c);
  }
  if (!after_letter) return false;
  for (size_t byte = end; byte < text.size();) {
    const char32_t c = take_character(text, byte);
    if (!ignores_case(c)) return !has_case(c);
  }
  return true;
}

void append_lower(std::string& out, std::string_view text, size_t begin, size_t end) {
  size_t byte = begin;
  const char32_t c = take_character(text, byte);
  if (c == kCapitalSigma) return append_utf8(out, is_final_sigma(text, begin, end) ? kFinalSigma : kSmallSigma);
  if (c == kCapitalDottedI) return append_all(out, U"i\U00000307");
  append_utf8(out, static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}

// Calls `visit(code point, first byte, byte behind)` for each character.
template <class Visit>
void for_each_character(std::string_view text, Visit visit) {
  for (size_t byte = 0; byte < text.size();) {
    const size_t begin = byte;
    const char32_t c = take_character(text, byte);
    visit(c, begin, byte);
  }
}

}  // namespace

std::string to_lower(std::string_view text) {
  std::string out;
  for_each_character(text, [&](char32_t, size_t begin, size_t end) { append_lower(out, text, begin, end); });
  return out;
}

std::string to_upper(std::string_view text) {
  std::string out;
  for_each_character(text, [&](char32_t c, size_t, size_t) { append_upper(out, c); });
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out;
  for_each_character(text, [&](char32_t c, size_t begin, size_t end) {
    if (begin == 0) {
      append_title(out, c);
    } else {
      append_lower(out, text, begin, end);
    }
  });
  return out;
}

std::string to_title(std::string_view text) {
  std::string out;
  bool in_word = false;
  for_each_character(text, [&](char32_t c, size_t begin, size_t end) {
    if (in_word) {
      append_lower(out, text, begin, end);
    } else {
      append_title(out, c);
    }
    in_word = has_case(c);
  });
  return out;
}

bool is_lower(std::string_view text) {
  bool any = false, other = false;
  for_each_character(text, [&](char32_t c, size_t, size_t) {
    any |= is_lowercase(c);
    other |= is_uppercase(c) || category(c) == UTF8PROC_CATEGORY_LT;
  });
  return any && !other;
}

bool is_upper(std::string_view text) {
  bool any = false, other = false;
  for_each_character(text, [&](char32_t c, size_t, size_t) {
    any |= is_uppercase(c);
    other |= is_lowercase(c) || category(c) == UTF8PROC_CATEGORY_LT;
  });
  return any && !other;
}

bool is_digits(std::string_view text) {
  bool all = !text.empty();
  for_each_character(text, [&](char32_t c, size_t, size_t) {
    all = all && (c < 0x80 ? c >= '0' && c <= '9' : category(c) == UTF8PROC_CATEGORY_ND || in_table(kOtherDigits, c));
  });
  return all;
}

}  // namespace athanor::tasks

#include "tokenizer/regex_dialect.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "tokenizer/unicode.h"
#include "tokenizer/unicode_categories.h"

namespace athanor::inline tokenizer {
namespace {

// Returns class members for the characters of `text`, which are in order, that `pattern` matches with this machine's
// PCRE2, which may know an older Unicode. One pass over about 140,000 characters takes some milliseconds, once.
std::string missing_from(const std::string& pattern, const std::string& text) {
  int error = 0;
  size_t error_at = 0;
  const std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF, &error, &error_at,
                    nullptr),
      pcre2_code_free);
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(pcre2_match_data_create(1, nullptr),
                                                                                  pcre2_match_data_free);
  ATHANOR_ASSERT(code && match);
  std::string members;
  uint32_t begin = 0, end = 0;  // the run that is not written yet, [begin, end)
  const auto flush = [&] {
    if (end > begin) members += fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", begin, end - 1);
  };
  for (size_t at = 0; pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                                  PCRE2_NO_UTF_CHECK, match.get(), nullptr) >= 0;) {
    const size_t* ends = pcre2_get_ovector_pointer(match.get());
    for (at = ends[0]; at < ends[1];) {
      const auto [c, length] = decode_utf8(text.data() + at);
      if (c != end) {
        flush();
        begin = c;
      }
      end = c + 1;
      at += length;
    }
  }
  flush();
  return members;
}

std::string text_of(std::span<const CodePointRange> ranges) {
  std::string text;
  for (const auto [first, last] : ranges) {
    for (uint32_t c = first; c <= last; ++c) append_utf8(text, c);
  }
  return text;
}

// Returns the missing members of \p{name}; nothing if only the engine knows its members.
std::string missing_members(std::string_view name) {
  static const std::map<std::string, std::string, std::less<>> all = [] {
    std::map<std::string, std::string, std::less<>> missing;
    const auto add = [&](std::string_view category, const std::string& members) {
      missing.emplace(category, missing_from(fmt::format("\\P{{{}}}+", category), members));
    };
    add("L", text_of(kLetterRanges));
    add("N", text_of(kNumberRanges));
    add("Nd", text_of(kDecimalRanges));
    for (const auto& [category, ranges] : kGeneralCategories) {
      std::string text;
      for (const auto [first, last, step] : ranges) {
        for (uint32_t c = first; c <= last; c += step) append_utf8(text, c);
      }
      add(category, text);
    }
    return missing;
  }();
  const auto found = all.find(name);
  return found == all.end() ? std::string() : found->second;
}

// Word characters. PCRE2's \w is narrower before 10.43, and Oniguruma counts some fractions and superscripts, though
// not inside a class. The joiners U+200C and U+200D are word characters to Unicode, and not to Oniguruma.
constexpr std::string_view kWordInClass = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
constexpr std::string_view kWordOutside = "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";

const std::string& word_members() {
  static const std::string members =
      std::string(kWordInClass) + missing_from(fmt::format("[^{}]+", kWordInClass), text_of(kPatternWordRanges));
  return members;
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  std::string run() {
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == '\\') {
        escape();
      } else if (in_class_) {
        class_character(c);
      } else {
        character(c);
      }
    }
    return std::move(out_);
  }

 private:
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail<DataError>("byte {} of the pattern {}: {}", at_, in_, fmt::vformat(format, fmt::make_format_args(args...)));
  }

  void take(size_t count) {
    out_ += in_.substr(at_, count);
    at_ += count;
  }

  void replace(size_t count, std::string_view by) {
    out_ += by;
    at_ += count;
  }

  void character(char c) {
    if (c == '[') {
      in_class_ = true;
      class_begin_ = out_.size();
      take(1);
      if (at_ < in_.size() && in_[at_] == '^') take(1);
      if (at_ < in_.size() && in_[at_] == ']') refuse("a class that begins with ] is not supported; write \\]");
    } else if (c == '(') {
      group();
    } else if (c == '}' && at_ + 1 < in_.size() && in_[at_ + 1] == '+') {
      refuse("\"}}+\" repeats in Oniguruma and is possessive in PCRE2; it is not supported");
    } else {
      take(1);
    }
  }

  void group() {
    static constexpr std::string_view kSame[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"};
    for (const auto start : kSame) {
      if (in_.substr(at_, start.size()) == start) return take(start.size());
    }
    if (at_ == 0 && in_.starts_with("(?i)")) return take(4);  // further inside, the scope in Ruby is different
    const auto next = in_.substr(at_ + 1, 1);
    if (next == "?" || next == "*") refuse("the group \"{}\" is not supported", in_.substr(at_, 4));
    replace(1, "(?:");  // no step reads captured groups
  }

  void class_character(char c) {
    if (c == ']' && removed_from_) {
      return end_of_difference();
    } else if (c == ']') {
      if (depth_ > 0) {
        --depth_;
        return replace(1, "");
      }
      in_class_ = false;
    } else if (c == '[') {
      return inner_class();
    } else if (c == '&' && in_.substr(at_, 2) == "&&") {
      return begin_difference();
    }
    take(1);
  }

  // [a&&[^b]], the one intersection that tokenizers use: a member of the first class that is not a member of the
  // second.
  void begin_difference() {
    const bool negated = out_.substr(class_begin_).starts_with("[^");
    if (in_.substr(at_ + 2, 2) != "[^" || negated || depth_ > 0 || removed_from_ || out_.size() == class_begin_ + 1) {
      refuse("intersections of classes are not supported, except [...&&[^...]]");
    }
    removed_from_ = out_.substr(class_begin_ + 1);
    out_.resize(class_begin_);
    replace(4, "(?:(?![");
  }
  void end_of_difference() {
    if (in_.substr(at_, 2) != "]]") refuse("intersections of classes are not supported, except [...&&[^...]]");
    in_class_ = false;
    replace(2, fmt::format("])[{}])", *removed_from_));
    removed_from_.reset();
  }

  // A class inside a class adds its members, so its brackets can be removed.
  void inner_class() {
    const auto next = in_.substr(at_ + 1, 1);
    if (next == "^" || next == ":" || next == "]" || out_.ends_with('-') || removed_from_) {
      refuse("a class inside a class is supported only if it begins with a member that it adds");
    }
    ++depth_;
    replace(1, "");
  }

  void escape() {
    if (at_ + 1 == in_.size()) refuse("it ends in a backslash");
    const char c = in_[at_ + 1];
    switch (c) {
      case 's': return replace(2, "\\p{White_Space}");
      case 'S': return replace(2, "\\P{White_Space}");
      case 'w': return replace(2, class_of(word_members() + std::string(in_class_ ? "" : kWordOutside)));
      case 'd': return replace(2, class_of(fmt::format("\\p{{Nd}}{}", missing_members("Nd"))));
      case 'D': return replace(2, "\\P{Nd}");
      case 'p':
      case 'P': return property();
      case 'x': return hexadecimal();
      case 'u': return four_digits();
      case 'r':
      case 'n':
      case 't':
      case 'f': return take(2);
      case 'v': return replace(2, "\\x{b}");
      case 'A':
      case 'z':
        if (!in_class_) return take(2);
        break;
      case 'W':
        if (!in_class_) return replace(2, fmt::format("[^{}{}]", word_members(), kWordOutside));
        break;
      case 'b':
      case 'B':
        if (!in_class_) return replace(2, word_border(c == 'b'));
        break;
      default:
        if (!std::isalnum(static_cast<unsigned char>(c)) && static_cast<unsigned char>(c) < 0x80) return take(2);
    }
    refuse("\"\\{}\" is not supported {}", c, in_class_ ? "in a class" : "here");
  }

  // PCRE2's own \b uses its own word characters.
  static std::string word_border(bool is_border) {
    const auto word = fmt::format("[{}{}]", word_members(), kWordOutside);
    return is_border ? fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word)
                     : fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word);
  }

  std::string class_of(const std::string& members) const { return in_class_ ? members : "[" + members + "]"; }

  void hexadecimal() {
    const auto is_hex = [this](size_t i) {
      return i < in_.size() && std::isxdigit(static_cast<unsigned char>(in_[i]));
    };
    size_t end = at_ + 2;
    if (end < in_.size() && in_[end] == '{') {
      while (is_hex(end + 1)) ++end;
      if (end == at_ + 2 || end > at_ + 10 || in_.substr(end + 1, 1) != "}") refuse("expected \\x{{...}}");
      return take(end + 2 - at_);
    }
    if (!is_hex(end) || !is_hex(end + 1) || in_[end] >= '8') {
      refuse("expected \\x and two hexadecimal digits below 80, or \\x{{...}}");
    }
    take(4);
  }

  // Reads \u4e00.
  void four_digits() {
    const auto digits = in_.substr(at_ + 2, 4);
    const auto is_hex = [](unsigned char c) { return std::isxdigit(c) != 0; };
    if (digits.size() != 4 || !std::all_of(digits.begin(), digits.end(), is_hex) || digits[0] == 'd' ||
        digits[0] == 'D') {
      refuse("expected \\u and four hexadecimal digits of a character");
    }
    replace(6, fmt::format("\\x{{{}}}", digits));
  }

  void property() {
    const size_t end = in_.find('}', at_);
    if (in_.substr(at_ + 2, 1) != "{" || end == std::string_view::npos) refuse("expected \\p{{...}}");
    const auto name = in_.substr(at_ + 3, end - at_ - 3);
    const size_t length = end + 1 - at_;
    const bool negated = in_[at_ + 1] == 'P';
    const auto missing = missing_members(name);
    if (missing.empty()) {
      static constexpr std::string_view kCategories[] = {
          "L",  "N",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "Nd", "Nl", "No", "P", "Pc",
          "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S",  "Sm", "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp"};
      static constexpr std::string_view kScripts[] = {"Han",   "Hiragana", "Katakana", "Hangul", "Latin",
                                                      "Greek", "Cyrillic", "Arabic",   "Thai",   "Hebrew"};
      const auto is_among = [&](auto& names) {
        return std::find(std::begin(names), std::end(names), name) != std::end(names);
      };
      if (is_among(kCategories)) return take(length);
      // By default, PCRE2 counts characters that several scripts share as part of a script.
      if (is_among(kScripts)) return replace(length, fmt::format("\\{}{{sc:{}}}", in_[at_ + 1], name));
      refuse("the property \"{}\" is not supported", name);
    }
    if (in_class_ && negated) refuse("\\P{{{}}} in a class is not supported", name);
    const auto members = fmt::format("\\p{{{}}}{}", name, missing);
    replace(length, in_class_ ? members : fmt::format("[{}{}]", negated ? "^" : "", members));
  }

  std::string_view in_;
  size_t at_ = 0;
  bool in_class_ = false;
  int depth_ = 0;                            // depth of classes inside the class
  size_t class_begin_ = 0;                   // position in out_
  std::optional<std::string> removed_from_;  // the class from which the members that are being read are removed
  std::string out_;
};

}  // namespace

std::string pcre2_from_oniguruma(std::string_view pattern) { return Translator(pattern).run(); }

}  // namespace athanor::inline tokenizer

#include "tasks/python_regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/core.h>
#include <pcre2.h>

#include <cctype>
#include <memory>
#include <optional>
#include <vector>

#include "tasks/python_repr.h"
#include "tasks/value.h"

namespace athanor::tasks {
namespace {

constexpr uint32_t kMaxMatchSteps = 1'000'000;

// Python's classes in the words of PCRE2; the first form is for inside of [...].
constexpr std::string_view kSpaces =
    "\\x09-\\x0d\\x1c-\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";
constexpr std::string_view kWords = "\\p{L}\\p{N}_", kDigits = "\\p{Nd}";

std::optional<std::string_view> members_of_class(char letter) {
  switch (std::tolower(letter)) {
    case 's': return kSpaces;
    case 'w': return kWords;
    case 'd': return kDigits;
    default: return std::nullopt;
  }
}

// Rewrites a pattern of Python for PCRE2, and refuses what the two do not share.
class PatternTranslator {
 public:
  explicit PatternTranslator(std::string_view pattern) : pattern_(pattern) {}

  std::string translate() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        translate_escape(false);
      } else if (c == '[') {
        translate_set();
      } else if (c == '(') {
        translate_group();
      } else if (c == '{') {
        translate_brace();
      } else {
        out_ += c;
        ++at_;
      }
    }
    return out_;
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    throw PythonError(fmt::format("this form does not have {} in the regular expression \"{}\"", what, pattern_));
  }

  void translate_escape(bool in_set) {
    if (at_ + 1 >= pattern_.size()) refuse("a backslash at the end");
    const char c = pattern_[at_ + 1];
    at_ += 2;
    if (const auto members = members_of_class(c)) {
      const bool negated = std::isupper(static_cast<unsigned char>(c));
      if (in_set && negated) refuse(fmt::format("\\{} inside of brackets", c));
      out_ += in_set ? std::string(*members) : fmt::format("[{}{}]", negated ? "^" : "", *members);
    } else if (std::string_view("ntrfv").find(c) != std::string_view::npos) {
      out_ += fmt::format("\\x{:02x}", c == 'n' ? 10 : c == 't' ? 9 : c == 'r' ? 13 : c == 'f' ? 12 : 11);
    } else if (c == 'x' && at_ + 2 <= pattern_.size()) {
      out_ += fmt::format("\\x{{{}}}", pattern_.substr(at_, 2));
      at_ += 2;
    } else if (c == 'u' && at_ + 4 <= pattern_.size()) {
      out_ += fmt::format("\\x{{{}}}", pattern_.substr(at_, 4));
      at_ += 4;
    } else if (std::ispunct(static_cast<unsigned char>(c)) || c == ' ') {
      out_ += '\\';
      out_ += c;
    } else if (!in_set && (c == 'b' || c == 'B' || (c >= '1' && c <= '9'))) {
      // With PCRE2_UCP, the words of \b are those of Python.
      out_ += '\\';
      out_ += c;
    } else {
      refuse(fmt::format("\\{}", c));
    }
  }

  void translate_set() {
    out_ += '[';
    ++at_;
    if (at_ < pattern_.size() && pattern_[at_] == '^') out_ += pattern_[at_++];
    for (bool first = true; at_ < pattern_.size(); first = false) {
      const char c = pattern_[at_];
      if (c == ']' && !first) {
        out_ += pattern_[at_++];
        return;
      }
      if (c == '\\') {
        translate_escape(true);
        continue;
      }
      if (c == '[' || c == ']') out_ += '\\';
      out_ += c;
      ++at_;
    }
    refuse("brackets without an end");
  }

  void translate_group() {
    const auto rest = pattern_.substr(at_);
    constexpr std::string_view kKinds[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?P<", "(?P="};
    if (rest.starts_with("(?") || rest.starts_with("(*")) {
      bool known = false;
      for (const auto kind : kKinds) known |= rest.starts_with(kind);
      if (!known) refuse(fmt::format("\"{}\"", rest.substr(0, 3)));
      const auto kind = rest.starts_with("(?P") || rest.starts_with("(?<") ? rest.substr(0, 4) : rest.substr(0, 3);
      out_ += kind;
      at_ += kind.size();
      return;
    }
    out_ += '(';
    ++at_;
  }

  // {m}, {m,}, {,n}, {m,n} repeat; in any other place a brace is itself.
  void translate_brace() {
    const size_t end = pattern_.find('}', at_);
    const auto inner = end == std::string_view::npos ? std::string_view() : pattern_.substr(at_ + 1, end - at_ - 1);
    const size_t comma = inner.find(',');
    const bool numbers = inner.find_first_not_of("0123456789,") == std::string_view::npos &&
                         inner.find(',', comma == std::string_view::npos ? 0 : comma + 1) ==
                             (comma == std::string_view::npos ? comma : std::string_view::npos);
    if (inner.empty() || !numbers) {
      out_ += "\\{";
      ++at_;
      return;
    }
    out_ += fmt::format("{{{}{}}}", inner[0] == ',' ? "0" : "", inner == "," ? ",65535" : inner);
    if (inner == ",") refuse("{,}");
    at_ = end + 1;
  }

  std::string_view pattern_;
  size_t at_ = 0;
  std::string out_;
};

using Code = std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)>;
using MatchData = std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)>;

const PCRE2_UCHAR* units(std::string_view text) { return reinterpret_cast<const PCRE2_UCHAR*>(text.data()); }

Code compile(std::string_view pattern) {
  const std::string translated = PatternTranslator(pattern).translate();
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  size_t offset = 0;
  Code code(pcre2_compile(units(translated), translated.size(), PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error,
                          &offset, context.get()),
            &pcre2_code_free);
  if (code) return code;
  PCRE2_UCHAR message[200];
  pcre2_get_error_message(error, message, sizeof message);
  throw PythonError(
      fmt::format("the regular expression \"{}\" is wrong: {}", pattern, reinterpret_cast<char*>(message)));
}

// The text that replaces a match: \1, \g<1>, \g<name>, and the escapes of letters.
class Replacement {
 public:
  Replacement(std::string_view by, const pcre2_code* code) {
    for (size_t at = 0; at < by.size();) {
      if (by[at] != '\\') {
        text(std::string(1, by[at++]));
        continue;
      }
      if (++at >= by.size()) throw PythonError("a replacement ends with a backslash");
      const char c = by[at++];
      if (c >= '1' && c <= '9') {
        if (at < by.size() && std::isdigit(static_cast<unsigned char>(by[at])))
          throw PythonError("this form has no groups above 9 in a replacement");
        group(c - '0', code);
      } else if (c == 'g' && at < by.size() && by[at] == '<' && by.find('>', at) != std::string_view::npos) {
        const size_t end = by.find('>', at);
        named_group(std::string(by.substr(at + 1, end - at - 1)), code);
        at = end + 1;
      } else if (const auto letter = std::string_view("ntrfv\\").find(c); letter != std::string_view::npos) {
        text(std::string(1, "\n\t\r\f\v\\"[letter]));
      } else if (std::isalnum(static_cast<unsigned char>(c))) {
        throw PythonError(fmt::format("this form does not have \\{} in a replacement", c));
      } else {
        text(std::string{'\\', c});
      }
    }
  }

  void append(std::string& out, std::string_view subject, const size_t* bounds, uint32_t num_groups) const {
    for (const auto& part : parts_) {
      if (part.group < 0) {
        out += part.text;
      } else if (static_cast<uint32_t>(part.group) < num_groups && bounds[2 * part.group] != PCRE2_UNSET) {
        out += subject.substr(bounds[2 * part.group], bounds[2 * part.group + 1] - bounds[2 * part.group]);
      }
    }
  }

 private:
  struct Part {
    int group = -1;
    std::string text;
  };
  void text(std::string value) { parts_.push_back({-1, std::move(value)}); }
  void group(int number, const pcre2_code* code) {
    uint32_t there = 0;
    pcre2_pattern_info(code, PCRE2_INFO_CAPTURECOUNT, &there);
    if (static_cast<uint32_t>(number) > there)
      throw PythonError(fmt::format("a replacement names group {} of {}", number, there));
    parts_.push_back({number, {}});
  }
  void named_group(const std::string& name, const pcre2_code* code) {
    if (!name.empty() && name.find_first_not_of("0123456789") == std::string::npos && name.size() < 4)
      return group(std::stoi(name), code);
    const int number = pcre2_substring_number_from_name(code, units(name));
    if (number < 0) throw PythonError(fmt::format("a replacement names a group \"{}\" that is not there", name));
    group(number, code);
  }
  std::vector<Part> parts_;
};

}  // namespace

std::string regex_replace(std::string_view text, std::string_view pattern, std::string_view by, int64_t count) {
  const Code code = compile(pattern);
  const Replacement replacement(by, code.get());
  const MatchData match(pcre2_match_data_create_from_pattern(code.get(), nullptr), &pcre2_match_data_free);
  const std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> context(
      pcre2_match_context_create(nullptr), &pcre2_match_context_free);
  pcre2_set_match_limit(context.get(), kMaxMatchSteps);
  std::string out;
  size_t copied = 0, at = 0;
  uint32_t options = PCRE2_NO_UTF_CHECK;
  for (int64_t done = 0; count <= 0 || done < count;) {
    const int groups = pcre2_match(code.get(), units(text), text.size(), at, options, match.get(), context.get());
    if (groups == PCRE2_ERROR_NOMATCH) break;
    if (groups < 0)
      throw PythonError(fmt::format("the regular expression \"{}\" needs too many steps on this text", pattern));
    const size_t* bounds = pcre2_get_ovector_pointer(match.get());
    if (bounds[0] > bounds[1] || bounds[0] < copied)
      throw PythonError(fmt::format("the regular expression \"{}\" matches behind its place", pattern));
    out += text.substr(copied, bounds[0] - copied);
    replacement.append(out, text, bounds, static_cast<uint32_t>(groups));
    check_text_size(out.size());
    copied = at = bounds[1];
    ++done;
    // As Python: what follows an empty match is no empty match at the same place.
    options = PCRE2_NO_UTF_CHECK | (bounds[0] == bounds[1] ? PCRE2_NOTEMPTY_ATSTART : 0);
  }
  out += text.substr(copied);
  return out;
}

}  // namespace athanor::tasks

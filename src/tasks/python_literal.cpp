#include "tasks/python_literal.h"

#include <fmt/core.h>

#include <cctype>

#include "base/text.h"
#include "tasks/python_repr.h"
#include "tasks/python_text.h"

namespace athanor::tasks {
namespace {

// What Python answers with an exception.
struct NoLiteral {};

constexpr int kMaxLiteralDepth = 100;

// Reads `digits` hexadecimal digits at `at` and moves behind them.
uint32_t take_hex(std::string_view body, size_t& at, size_t digits) {
  uint32_t code = 0;
  const size_t end = at + digits;
  if (end > body.size()) throw PythonError("an escape of a string is cut off");
  for (; at < end; ++at) {
    const char c = static_cast<char>(std::tolower(static_cast<unsigned char>(body[at])));
    if (!std::isxdigit(static_cast<unsigned char>(c))) throw PythonError("an escape of a string is cut off");
    code = code * 16 + static_cast<uint32_t>(c <= '9' ? c - '0' : c - 'a' + 10);
  }
  if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
    throw PythonError(fmt::format("the escape of {:#x} is no character", code));
  return code;
}

uint32_t take_octal(std::string_view body, size_t& at) {
  uint32_t code = 0;
  for (int i = 0; i < 3 && at < body.size() && body[at] >= '0' && body[at] <= '7'; ++i, ++at)
    code = code * 8 + static_cast<uint32_t>(body[at] - '0');
  return code;
}

class LiteralReader {
 public:
  explicit LiteralReader(std::string_view text) : text_(text) {}

  Value read_all() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
    Value value = read_list_without_brackets();
    // Behind the value only ends of lines may follow.
    while (at_ < text_.size() && (is_blank_here() || text_[at_] == '\n' || text_[at_] == '\r')) ++at_;
    if (at_ < text_.size()) throw NoLiteral();
    return value;
  }

 private:
  bool is_blank_here() const { return text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\f'; }

  // Spaces, and ends of lines inside of brackets.
  void skip() {
    while (at_ < text_.size() && (is_blank_here() || (depth_ > 0 && (text_[at_] == '\n' || text_[at_] == '\r')))) ++at_;
    if (at_ < text_.size() && (text_[at_] == '#' || text_[at_] == '\\'))
      throw PythonError("this form reads no comments and no continued lines in Python literals");
  }
  bool take(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) throw NoLiteral();
  }

  // A tuple needs no brackets: `1, 2`.
  Value read_list_without_brackets() {
    Value first = read();
    if (!take(',')) return first;
    Items items{std::move(first)};
    for (skip(); at_ < text_.size() && text_[at_] != '\n' && text_[at_] != '\r'; skip()) {
      items.push_back(read());
      if (!take(',')) break;
    }
    return Value::of_tuple(std::move(items));
  }

  Value read() {
    skip();
    if (at_ >= text_.size()) throw NoLiteral();
    const char c = text_[at_];
    if (c == '[' || c == '(' || c == '{') {
      if (++depth_ > kMaxLiteralDepth)
        throw PythonError(fmt::format("a literal of more than {} levels", kMaxLiteralDepth));
      ++at_;
      Value value = c == '[' ? read_list() : c == '(' ? read_tuple() : read_dict();
      --depth_;
      return value;
    }
    if (std::isdigit(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '+') return read_number();
    return c == '\'' || c == '"' || std::isalpha(static_cast<unsigned char>(c)) ? read_word() : throw NoLiteral();
  }

  Items read_items(char close, bool& has_comma) {
    Items items;
    has_comma = false;
    while (!take(close)) {
      items.push_back(read());
      if (take(',')) {
        has_comma = true;
      } else {
        expect(close);
        break;
      }
    }
    return items;
  }
  Value read_list() {
    bool has_comma;
    return Value::of_list(read_items(']', has_comma));
  }
  Value read_tuple() {
    bool has_comma;
    Items items = read_items(')', has_comma);
    return items.size() == 1 && !has_comma ? items[0] : Value::of_tuple(std::move(items));
  }
  Value read_dict() {
    Dict dict;
    while (!take('}')) {
      Value key = read();
      if (!take(':')) throw PythonError("this form reads no sets");
      Value value = read();
      dict.set(std::move(key), std::move(value));
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    return Value::of_dict(std::move(dict));
  }

  Value read_number() {
    int sign = 1;
    if (text_[at_] == '-' || text_[at_] == '+') sign = text_[at_++] == '-' ? -1 : 1;
    skip();
    const size_t begin = at_;
    const bool other_base =
        text_.substr(at_).size() > 1 && text_[at_] == '0' && std::isalpha(static_cast<unsigned char>(text_[at_ + 1]));
    while (at_ < text_.size()) {
      const char c = text_[at_];
      const bool signs_exponent =
          !other_base && (c == '+' || c == '-') && at_ > begin && (text_[at_ - 1] | 0x20) == 'e';
      if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '_' && !signs_exponent) break;
      ++at_;
    }
    const auto word = text_.substr(begin, at_ - begin);
    if (word.empty() || !(std::isdigit(static_cast<unsigned char>(word[0])) || word[0] == '.')) throw NoLiteral();
    if (word.back() == 'j' || word.back() == 'J') throw PythonError("this form reads no complex numbers");
    skip();
    if (at_ < text_.size() && (text_[at_] == '+' || text_[at_] == '-'))
      throw PythonError("this form computes no sums in Python literals");
    if (const auto number = read_int(word, 0)) return Value::of_int(sign * *number);
    if (other_base || word.find_first_of(".eE") == std::string_view::npos) throw NoLiteral();
    const auto number = read_float(word);
    if (!number) throw NoLiteral();
    return Value::of_float(sign * *number);
  }

  // None, True, False, or strings one after the other.
  Value read_word() {
    const size_t begin = at_;
    while (at_ < text_.size() && std::isalnum(static_cast<unsigned char>(text_[at_]))) ++at_;
    const auto word = text_.substr(begin, at_ - begin);
    if (at_ < text_.size() && (text_[at_] == '\'' || text_[at_] == '"')) {
      at_ = begin;
      std::string joined;
      while (begins_string()) joined += read_string();
      return Value::of_text(std::move(joined));
    }
    if (word == "None") return {};
    if (word == "True" || word == "False") return Value::of_bool(word == "True");
    if (word == "set") throw PythonError("this form reads no sets");
    throw NoLiteral();
  }

  bool begins_string() {
    skip();
    size_t at = at_;
    while (at < text_.size() && at < at_ + 2 && std::isalpha(static_cast<unsigned char>(text_[at]))) ++at;
    return at < text_.size() && (text_[at] == '\'' || text_[at] == '"');
  }

  std::string read_string() {
    bool raw = false;
    for (; text_[at_] != '\'' && text_[at_] != '"'; ++at_) {
      const char prefix = static_cast<char>(std::tolower(static_cast<unsigned char>(text_[at_])));
      if (prefix == 'b' || prefix == 'f')
        throw PythonError(fmt::format("this form reads no strings with the prefix {}", prefix));
      if (prefix != 'r' && prefix != 'u') throw NoLiteral();
      raw |= prefix == 'r';
    }
    const char quote = text_[at_];
    const std::string three(3, quote);
    const bool is_long = text_.substr(at_, 3) == three;
    at_ += is_long ? 3 : 1;
    const size_t begin = at_;
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == '\\') {
        ++at_;
      } else if (!is_long && (text_[at_] == '\n' || text_[at_] == '\r')) {
        throw NoLiteral();
      } else if (is_long ? text_.substr(at_, 3) == three : text_[at_] == quote) {
        const auto body = text_.substr(begin, at_ - begin);
        at_ += is_long ? 3 : 1;
        return raw ? std::string(body) : replace_escapes(body);
      }
    }
    throw NoLiteral();
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

std::string replace_escapes(std::string_view body) {
  std::string out;
  for (size_t at = 0; at < body.size();) {
    if (body[at] != '\\') {
      out += body[at++];
      continue;
    }
    if (++at >= body.size()) throw PythonError("a string ends with a backslash");
    const char c = body[at];
    if (c >= '0' && c <= '7') {
      append_utf8(out, take_octal(body, at));
      continue;
    }
    ++at;
    switch (c) {
      case 'n': out += '\n'; break;
      case 't': out += '\t'; break;
      case 'r': out += '\r'; break;
      case 'a': out += '\a'; break;
      case 'b': out += '\b'; break;
      case 'f': out += '\f'; break;
      case 'v': out += '\v'; break;
      case '\\':
      case '\'':
      case '"': out += c; break;
      case '\n': break;
      case 'x': append_utf8(out, take_hex(body, at, 2)); break;
      case 'u': append_utf8(out, take_hex(body, at, 4)); break;
      case 'U': append_utf8(out, take_hex(body, at, 8)); break;
      case 'N': throw PythonError("this form reads no characters by name (\\N{...})");
      default:
        if (static_cast<unsigned char>(c) >= 0x80)
          throw PythonError("a backslash before a character that is not ASCII");
        out += '\\';
        out += c;
    }
  }
  return out;
}

std::optional<Value> read_literal(std::string_view text) {
  try {
    return LiteralReader(text).read_all();
  } catch (const NoLiteral&) {
    return std::nullopt;
  }
}

}  // namespace athanor::tasks

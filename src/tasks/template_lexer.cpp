#include "tasks/template_lexer.h"

#include <fmt/core.h>
#include <utf8proc.h>

#include <cctype>

#include "base/text.h"
#include "tasks/python_literal.h"
#include "tasks/python_text.h"
#include "tasks/template_nodes.h"

namespace athanor::tasks {
namespace {

using TokenKind = Token::Kind;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Python's identifiers, without the few characters that only its tables know.
bool in_name(char32_t c, bool first) {
  if (c < 0x80) return c == '_' || std::isalpha(static_cast<int>(c)) || (!first && std::isdigit(static_cast<int>(c)));
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_NL: return true;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_PC: return !first;
    default: return false;
  }
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> cut_all() {
    while (at_ < source_.size()) {
      const size_t tag = find_tag();
      std::string_view text = source_.substr(at_, tag - at_);
      const size_t begin = at_;
      at_ = tag;
      if (tag == source_.size()) {
        add_text(begin, text);
        break;
      }
      const char kind = source_[tag + 1];
      at_ += 2;
      if (take_sign() == '-') text = strip(text, Side::kRight);
      add_text(begin, text);
      if (kind == '#') {
        skip_comment(tag);
      } else if (kind == '{') {
        cut_tag(tag, TokenKind::kOutputBegin, TokenKind::kOutputEnd, "}}");
      } else if (!cut_raw(tag)) {
        cut_tag(tag, TokenKind::kBlockBegin, TokenKind::kBlockEnd, "%}");
      }
    }
    add(TokenKind::kEnd, source_.size());
    return std::move(tokens_);
  }

  std::vector<Token> cut_alone() {
    while (skip_spaces(), at_ < source_.size()) cut_token();
    if (!open_.empty()) fail_at(source_.size(), fmt::format("the \"{}\" has no end", open_.back()));
    add(TokenKind::kEnd, source_.size());
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail_at(size_t offset, const std::string& what) const { throw TemplateError(what, offset); }

  void add(TokenKind kind, size_t offset, std::string text = {}) { tokens_.push_back({kind, offset, std::move(text)}); }
  void add_text(size_t offset, std::string_view text) {
    if (!text.empty()) add(TokenKind::kText, offset, std::string(text));
  }

  size_t find_tag() const {
    for (size_t i = at_; i + 1 < source_.size(); ++i)
      if (source_[i] == '{' && (source_[i + 1] == '{' || source_[i + 1] == '%' || source_[i + 1] == '#')) return i;
    return source_.size();
  }

  bool here(std::string_view text) const { return source_.substr(at_).starts_with(text); }

  // `{{-` removes the spaces before it; `{{+` has no meaning with lm_eval's settings.
  char take_sign() {
    if (at_ < source_.size() && (source_[at_] == '-' || source_[at_] == '+')) {
      // A comment or an expression may begin with a plus: Jinja takes it as the sign, too.
      return source_[at_++];
    }
    return '\0';
  }

  void skip_all_spaces() {
    const auto rest = source_.substr(at_);
    at_ += rest.size() - strip(rest, Side::kLeft).size();
  }

  void skip_comment(size_t tag) {
    const size_t end = source_.find("#}", at_);
    if (end == std::string_view::npos) fail_at(tag, "the comment has no end");
    const bool strips = end > at_ && source_[end - 1] == '-';
    at_ = end + 2;
    if (strips) skip_all_spaces();
  }

  // {% raw %} ... {% endraw %} is text. Returns false if this is another block.
  bool cut_raw(size_t tag) {
    const size_t inside = at_;
    skip_spaces();
    if (!here("raw")) {
      at_ = inside;
      return false;
    }
    at_ += 3;
    skip_spaces();
    const bool strips = here("-%}");
    if (!strips && !here("%}")) {
      at_ = inside;
      return false;
    }
    at_ += strips ? 3 : 2;
    if (strips) skip_all_spaces();
    const size_t begin = at_;
    for (size_t end = source_.find("{%", at_); end != std::string_view::npos; end = source_.find("{%", end + 2)) {
      at_ = end + 2;
      const char sign = take_sign();
      skip_spaces();
      if (!here("endraw")) continue;
      at_ += 6;
      skip_spaces();
      const bool strips_end = here("-%}");
      if (!strips_end && !here("%}") && !here("+%}")) continue;
      at_ += here("%}") ? 2 : 3;
      const auto text = source_.substr(begin, end - begin);
      add_text(begin, sign == '-' ? strip(text, Side::kRight) : text);
      if (strips_end) skip_all_spaces();
      return true;
    }
    fail_at(tag, "the raw block has no end");
  }

  void skip_spaces() { skip_all_spaces(); }

  void cut_tag(size_t tag, TokenKind begin, TokenKind end, std::string_view closing) {
    add(begin, tag);
    open_.clear();
    while (true) {
      skip_spaces();
      if (at_ >= source_.size()) fail_at(tag, fmt::format("the tag has no end; \"{}\" is missing", closing));
      const bool signed_end = (source_[at_] == '-' || (source_[at_] == '+' && end == TokenKind::kBlockEnd)) &&
                              source_.substr(at_ + 1).starts_with(closing);
      if (open_.empty() && (signed_end || here(closing))) {
        const bool strips = signed_end && source_[at_] == '-';
        add(end, at_);
        at_ += signed_end ? 3 : 2;
        if (strips) skip_all_spaces();
        return;
      }
      cut_token();
    }
  }

  void cut_token() {
    const size_t begin = at_;
    const char c = source_[at_];
    if (is_digit(c)) return cut_number();
    if (c == '"' || c == '\'') return cut_string();
    size_t next = at_;
    if (in_name(take_character(source_, next), true)) {
      while (at_ = next, next < source_.size() && in_name(take_character(source_, next), false)) {
      }
      return add(TokenKind::kName, begin, std::string(source_.substr(begin, at_ - begin)));
    }
    for (const std::string_view two : {"//", "**", "==", "!=", ">=", "<="}) {
      if (here(two)) {
        at_ += 2;
        return add(TokenKind::kOperator, begin, std::string(two));
      }
    }
    if (std::string_view("+-/*%~[](){}><=.:|,").find(c) == std::string_view::npos)
      fail_at(at_,
              fmt::format("the character \"{}\" has no meaning here", printable(characters(source_.substr(at_))[0])));
    balance(c);
    ++at_;
    add(TokenKind::kOperator, begin, std::string(1, c));
  }

  void balance(char c) {
    if (c == '(' || c == '[' || c == '{') open_ += c;
    if (c != ')' && c != ']' && c != '}') return;
    const char opening = c == ')' ? '(' : c == ']' ? '[' : '{';
    if (open_.empty() || open_.back() != opening) fail_at(at_, fmt::format("the \"{}\" closes nothing", c));
    open_.pop_back();
  }

  void take_digits() {
    while (at_ < source_.size() &&
           (is_digit(source_[at_]) || (source_[at_] == '_' && at_ + 1 < source_.size() && is_digit(source_[at_ + 1]))))
      ++at_;
  }

  void cut_number() {
    const size_t begin = at_;
    bool is_float = false;
    const bool behind_dot = begin > 0 && source_[begin - 1] == '.';
    take_digits();
    if (!behind_dot) {
      if (at_ + 1 < source_.size() && source_[at_] == '.' && is_digit(source_[at_ + 1])) {
        is_float = true;
        ++at_;
        take_digits();
      }
      if (at_ < source_.size() && (source_[at_] | 0x20) == 'e') {
        size_t digits = at_ + 1;
        if (digits < source_.size() && (source_[digits] == '+' || source_[digits] == '-')) ++digits;
        if (digits < source_.size() && is_digit(source_[digits])) {
          is_float = true;
          at_ = digits;
          take_digits();
        }
      }
    }
    const auto text = source_.substr(begin, at_ - begin);
    size_t next = at_;
    if (at_ < source_.size() && in_name(take_character(source_, next), true))
      fail_at(begin, "this form has only decimal numbers, with a space behind them");
    if (!is_float && text[0] == '0' && text.find_first_not_of("0_") != std::string_view::npos)
      fail_at(begin, fmt::format("the number {} begins with 0", text));
    add(is_float ? TokenKind::kFloat : TokenKind::kInteger, begin, std::string(text));
  }

  void cut_string() {
    const size_t begin = at_++;
    const char quote = source_[begin];
    while (at_ < source_.size() && source_[at_] != quote) at_ += source_[at_] == '\\' ? 2 : 1;
    if (at_ >= source_.size()) fail_at(begin, "the string has no end");
    try {
      add(TokenKind::kString, begin, replace_escapes(source_.substr(begin + 1, at_ - begin - 1)));
    } catch (const PythonError& error) {
      fail_at(begin, error.what());
    }
    ++at_;
  }

  std::string_view source_;
  size_t at_ = 0;
  std::string open_;  // the brackets that are open
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> cut_template(std::string_view source) { return Lexer(source).cut_all(); }
std::vector<Token> cut_expression(std::string_view source) { return Lexer(source).cut_alone(); }

}  // namespace athanor::tasks

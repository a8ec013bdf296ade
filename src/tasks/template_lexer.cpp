#include "tasks/template_lexer.h"

#include <fmt/core.h>
#include <utf8proc.h>

#include <cctype>

#include "base/scanner.h"
#include "base/text.h"
#include "tasks/python_literal.h"
#include "tasks/python_text.h"
#include "tasks/template_nodes.h"

namespace athanor::tasks {
namespace {

using TokenKind = Token::Kind;

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

constexpr std::string_view kTemplateOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "*",
                                                   "/",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                   ">",  "<",  "=",  ".",  ":",  "|",  ","};

constexpr Lexicon kTemplateLexicon = {
    .blanks = [](std::string_view rest) { return rest.size() - strip(rest, Side::kLeft).size(); },
    .name_character = [](std::string_view rest, bool first) -> size_t {
      size_t next = 0;
      return in_name(take_character(rest, next), first) ? next : 0;
    },
    .operators = kTemplateOperators,
    .quotes = "\"'",
    .groups_digits = true};

// Cuts texts and tags; what is in a tag is for the scanner.
class Lexer : private Scanner {
 public:
  explicit Lexer(std::string_view source) : Scanner(source, kTemplateLexicon), source_(source) {}

  std::vector<Token> cut_all() {
    while (!at_end()) {
      const size_t tag = find_tag();
      const size_t begin = here();
      std::string_view text = source_.substr(begin, tag - begin);
      go_to(tag);
      if (tag == source_.size()) {
        add_text(begin, text);
        break;
      }
      const char kind = source_[tag + 1];
      skip(2);
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
    while (skip_blanks(), !at_end()) cut_token();
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
    for (size_t i = here(); i + 1 < source_.size(); ++i)
      if (source_[i] == '{' && (source_[i + 1] == '{' || source_[i + 1] == '%' || source_[i + 1] == '#')) return i;
    return source_.size();
  }

  // `{{-` removes the spaces before it; `{{+` has no meaning with lm_eval's settings.
  char take_sign() {
    // A comment or an expression may begin with a plus: Jinja takes it as the sign, too.
    const char sign = peek();
    if (sign != '-' && sign != '+') return '\0';
    skip();
    return sign;
  }

  void skip_comment(size_t tag) {
    const size_t end = source_.find("#}", here());
    if (end == std::string_view::npos) fail_at(tag, "the comment has no end");
    const bool strips = end > here() && source_[end - 1] == '-';
    go_to(end + 2);
    if (strips) skip_blanks();
  }

  // {% raw %} ... {% endraw %} is text. Returns false if this is another block.
  bool cut_raw(size_t tag) {
    const size_t inside = here();
    skip_blanks();
    if (!starts_with("raw")) {
      go_to(inside);
      return false;
    }
    skip(3);
    skip_blanks();
    const bool strips = starts_with("-%}");
    if (!strips && !starts_with("%}")) {
      go_to(inside);
      return false;
    }
    skip(strips ? 3 : 2);
    if (strips) skip_blanks();
    const size_t begin = here();
    for (size_t end = source_.find("{%", begin); end != std::string_view::npos; end = source_.find("{%", end + 2)) {
      go_to(end + 2);
      const char sign = take_sign();
      skip_blanks();
      if (!starts_with("endraw")) continue;
      skip(6);
      skip_blanks();
      const bool strips_end = starts_with("-%}");
      if (!strips_end && !starts_with("%}") && !starts_with("+%}")) continue;
      skip(starts_with("%}") ? 2 : 3);
      const auto text = source_.substr(begin, end - begin);
      add_text(begin, sign == '-' ? strip(text, Side::kRight) : text);
      if (strips_end) skip_blanks();
      return true;
    }
    fail_at(tag, "the raw block has no end");
  }

  void cut_tag(size_t tag, TokenKind begin, TokenKind end, std::string_view closing) {
    add(begin, tag);
    open_.clear();
    while (true) {
      skip_blanks();
      if (at_end()) fail_at(tag, fmt::format("the tag has no end; \"{}\" is missing", closing));
      const bool signed_end =
          (peek() == '-' || (peek() == '+' && end == TokenKind::kBlockEnd)) && rest().substr(1).starts_with(closing);
      if (open_.empty() && (signed_end || starts_with(closing))) {
        const bool strips = signed_end && peek() == '-';
        add(end, here());
        skip(signed_end ? 3 : 2);
        if (strips) skip_blanks();
        return;
      }
      cut_token();
    }
  }

  void cut_token() {
    const size_t begin = here();
    if (is_digit(peek())) return cut_number();
    if (at_string()) return cut_string();
    if (const auto name = take_name(); !name.empty()) return add(TokenKind::kName, begin, std::string(name));
    const auto sign = peek_operator();
    if (sign.empty())
      fail_at(begin, fmt::format("the character \"{}\" has no meaning here", printable(characters(rest())[0])));
    balance(sign);
    skip(sign.size());
    add(TokenKind::kOperator, begin, std::string(sign));
  }

  void balance(std::string_view sign) {
    const char c = sign[0];
    if (c == '(' || c == '[' || c == '{') open_ += c;
    if (c != ')' && c != ']' && c != '}') return;
    const char opening = c == ')' ? '(' : c == ']' ? '[' : '{';
    if (open_.empty() || open_.back() != opening) fail_at(here(), fmt::format("the \"{}\" closes nothing", c));
    open_.pop_back();
  }

  void cut_number() {
    const size_t begin = here();
    const bool behind_dot = begin > 0 && source_[begin - 1] == '.';
    const auto text = behind_dot ? take_digits() : take_number();
    const bool is_float = text.find_first_of(".eE") != std::string_view::npos;
    if (!peek_name().empty()) fail_at(begin, "this form has only decimal numbers, with a space behind them");
    if (!is_float && text[0] == '0' && text.find_first_not_of("0_") != std::string_view::npos)
      fail_at(begin, fmt::format("the number {} begins with 0", text));
    add(is_float ? TokenKind::kFloat : TokenKind::kInteger, begin, std::string(text));
  }

  void cut_string() {
    const size_t begin = here();
    const String string = take_string();
    if (!string.is_closed) fail_at(begin, "the string has no end");
    try {
      add(TokenKind::kString, begin, replace_escapes(string.body));
    } catch (const PythonError& error) {
      fail_at(begin, error.what());
    }
  }

  std::string_view source_;
  std::string open_;  // the brackets that are open
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> cut_template(std::string_view source) { return Lexer(source).cut_all(); }
std::vector<Token> cut_expression(std::string_view source) { return Lexer(source).cut_alone(); }

}  // namespace athanor::tasks

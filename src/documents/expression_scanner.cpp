#include "documents/expression_scanner.h"

#include <cctype>
#include <cstdlib>

#include "base/text.h"

namespace athanor::inline documents {
namespace {

constexpr std::string_view kExpressionOperators[] = {"||", "&&", "==", "!=", "<=", ">=", "<", ">", "!", "+",
                                                     "-",  "*",  "/",  "(",  ")",  "[",  "]", ",", "$"};

constexpr Lexicon kExpressionLexicon = {
    .blanks =
        [](std::string_view rest) {
          size_t bytes = 0;
          while (bytes < rest.size() && std::isspace(static_cast<unsigned char>(rest[bytes]))) ++bytes;
          return bytes;
        },
    // Every byte of a character beyond ASCII is a part of a name.
    .name_character = [](std::string_view rest, bool first) -> size_t {
      const char c = rest[0];
      return is_ascii_letter(c) || c == '_' || (c & 0x80) || (!first && is_digit(c)) ? 1 : 0;
    },
    .operators = kExpressionOperators,
    .quotes = "\"'"};

// Replaces the escapes of a string's body, which is at `offset`.
std::string replace_escapes(std::string_view body, size_t offset) {
  std::string value;
  for (size_t i = 0; i < body.size(); ++i) {
    if (body[i] != '\\') {
      value += body[i];
      continue;
    }
    const char c = ++i < body.size() ? body[i] : '\0';
    if (c != '\\' && c != '"' && c != '\'' && c != 'n' && c != 't') {
      ExpressionScanner::fail_at(offset + i - 1, "a backslash may only come before a quote, a backslash, n or t");
    }
    value += c == 'n' ? '\n' : c == 't' ? '\t' : c;
  }
  return value;
}

}  // namespace

ExpressionScanner::ExpressionScanner(std::string_view text) : Scanner(text, kExpressionLexicon) {}

void ExpressionScanner::expect(std::string_view sign) {
  if (!take(sign)) fail_at(here(), fmt::format("\"{}\" is expected, not {}", sign, shown()));
}

double ExpressionScanner::take_literal_number() {
  const std::string number(take_number());
  if ((peek() == 'e' || peek() == 'E') && number.find_first_of("eE") == std::string::npos) {
    skip();
    if (peek() == '+' || peek() == '-') skip();
    fail_at(here(), "digits are expected after the e of a number");
  }
  if (!peek_name(false).empty()) fail_at(here(), fmt::format("{} ends no number", shown()));
  return std::strtod(number.c_str(), nullptr);
}

std::string ExpressionScanner::take_literal_string() {
  const size_t begin = here();
  const String string = take_string();
  std::string value = replace_escapes(string.body, begin + 1);
  if (!string.is_closed) fail_at(begin, "this quote is not closed");
  return value;
}

std::string ExpressionScanner::shown() const {
  if (at_end()) return "the end";
  const auto name = peek_name(false);
  return "\"" + printable(name.empty() ? rest().substr(0, 1) : name.substr(0, 60)) + "\"";
}

}  // namespace athanor::inline documents

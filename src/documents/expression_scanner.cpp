#include "documents/expression_scanner.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "base/text.h"

namespace athanor::inline documents {

void ExpressionScanner::skip_blanks() {
  while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
}

bool ExpressionScanner::take(std::string_view sign) {
  skip_blanks();
  if (!text_.substr(at_).starts_with(sign)) return false;
  at_ += sign.size();
  return true;
}

void ExpressionScanner::expect(std::string_view sign) {
  if (!take(sign)) fail_at(at_, fmt::format("\"{}\" is expected, not {}", sign, shown()));
}

bool ExpressionScanner::take_word(std::string_view word) {
  skip_blanks();
  const auto rest = text_.substr(at_);
  if (!rest.starts_with(word) || (rest.size() > word.size() && is_name_char(rest[word.size()]))) return false;
  at_ += word.size();
  return true;
}

std::string ExpressionScanner::take_name() {
  const size_t begin = at_;
  if (at_ < text_.size() && is_name_start(text_[at_])) {
    while (at_ < text_.size() && is_name_char(text_[at_])) ++at_;
  }
  return std::string(text_.substr(begin, at_ - begin));
}

double ExpressionScanner::take_number() {
  const size_t begin = at_;
  const auto digits = [&] {
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
  };
  digits();
  if (at_ + 1 < text_.size() && text_[at_] == '.' && is_digit(text_[at_ + 1])) {
    ++at_;
    digits();
  }
  if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
    ++at_;
    if (at_ < text_.size() && (text_[at_] == '+' || text_[at_] == '-')) ++at_;
    if (at_ >= text_.size() || !is_digit(text_[at_])) fail_at(at_, "digits are expected after the e of a number");
    digits();
  }
  if (at_ < text_.size() && is_name_char(text_[at_])) fail_at(at_, fmt::format("{} ends no number", shown()));
  return std::strtod(std::string(text_.substr(begin, at_ - begin)).c_str(), nullptr);
}

std::string ExpressionScanner::take_string() {
  const size_t begin = at_;
  const char quote = text_[at_++];
  std::string value;
  for (; at_ < text_.size() && text_[at_] != quote; ++at_) {
    if (text_[at_] != '\\') {
      value += text_[at_];
      continue;
    }
    const char c = ++at_ < text_.size() ? text_[at_] : '\0';
    if (c != '\\' && c != '"' && c != '\'' && c != 'n' && c != 't') {
      fail_at(at_ - 1, "a backslash may only come before a quote, a backslash, n or t");
    }
    value += c == 'n' ? '\n' : c == 't' ? '\t' : c;
  }
  if (at_ >= text_.size()) fail_at(begin, "this quote is not closed");
  ++at_;
  return value;
}

std::string ExpressionScanner::shown() const {
  if (at_ >= text_.size()) return "the end";
  size_t end = at_ + 1;
  if (is_name_char(text_[at_])) {
    while (end < text_.size() && is_name_char(text_[end])) ++end;
  }
  while (end < text_.size() && (text_[end] & 0xC0) == 0x80) ++end;
  return "\"" + printable(text_.substr(at_, std::min<size_t>(end - at_, 60))) + "\"";
}

}  // namespace athanor::inline documents

#include "base/scanner.h"

#include <algorithm>

namespace athanor {

std::string_view Scanner::peek_name(bool first) const {
  size_t end = at_;
  while (end < text_.size()) {
    const size_t bytes = lexicon_.name_character(text_.substr(end), first && end == at_);
    if (bytes == 0) break;
    end += bytes;
  }
  return text_.substr(std::min(at_, text_.size()), end - at_);
}

std::string_view Scanner::peek_operator() const {
  const auto found = std::ranges::find_if(lexicon_.operators, [&](std::string_view each) { return starts_with(each); });
  return found == lexicon_.operators.end() ? std::string_view() : *found;
}

bool Scanner::take(std::string_view sign) {
  skip_blanks();
  if (peek_operator() != sign) return false;
  at_ += sign.size();
  return true;
}

bool Scanner::take_word(std::string_view word) {
  skip_blanks();
  if (peek_name() != word) return false;
  at_ += word.size();
  return true;
}

std::string_view Scanner::take_name() {
  const std::string_view name = peek_name();
  at_ += name.size();
  return name;
}

std::string_view Scanner::take_digits() {
  const size_t begin = at_;
  const auto digit_at = [&](size_t at) { return at < text_.size() && is_digit(text_[at]); };
  while (digit_at(at_) || (lexicon_.groups_digits && at_ > begin && peek() == '_' && digit_at(at_ + 1))) ++at_;
  return text_.substr(begin, at_ - begin);
}

std::string_view Scanner::take_number() {
  const size_t begin = at_;
  const bool has_whole = !take_digits().empty();
  if (peek() == '.' && (has_whole || lexicon_.bare_point)) {
    ++at_;
    const bool has_part = !take_digits().empty();
    if (!has_part && !(has_whole && lexicon_.bare_point)) --at_;
  }
  if (at_ > begin && (peek() == 'e' || peek() == 'E')) {
    const size_t before = at_++;
    if (peek() == '+' || peek() == '-') ++at_;
    if (take_digits().empty()) at_ = before;
  }
  return text_.substr(begin, at_ - begin);
}

Scanner::String Scanner::take_string() {
  const char quote = text_[at_++];
  const size_t begin = at_;
  while (at_ < text_.size() && text_[at_] != quote) at_ += text_[at_] == '\\' ? 2 : 1;
  at_ = std::min(at_, text_.size());
  const std::string_view body = text_.substr(begin, at_ - begin);
  if (at_end()) return {body, false};
  ++at_;
  return {body, true};
}

}  // namespace athanor

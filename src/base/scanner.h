#pragma once
// Cuts a text of a small language into names, numbers, strings and operators. What differs between the languages is
// data; their grammars, and what they say about errors, are their own.

#include <cstddef>
#include <span>
#include <string_view>

namespace athanor {

/// The words of a language.
struct Lexicon {
  /// Returns the number of bytes of the blanks that `rest` begins with.
  size_t (*blanks)(std::string_view rest);
  /// Returns the number of bytes of the character that `rest`, which is not empty, begins with, if a name may begin
  /// with it (`first`) or contain it; else 0.
  size_t (*name_character)(std::string_view rest, bool first);
  std::span<const std::string_view> operators;  ///< an operator comes before those that it begins with
  std::string_view quotes;                      ///< the characters that begin and end strings
  bool groups_digits = false;                   ///< 1_000 is a number
  bool bare_point = false;                      ///< .5 and 1. are numbers
};

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
inline bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/// Reads a text from its beginning to its end. Positions are offsets in bytes, from 0.
class Scanner {
 public:
  /// @param text, lexicon  outlive this.
  Scanner(std::string_view text, const Lexicon& lexicon) : text_(text), lexicon_(lexicon) {}

  size_t here() const { return at_; }
  void go_to(size_t offset) { at_ = offset; }
  bool at_end() const { return at_ >= text_.size(); }
  std::string_view rest() const { return text_.substr(at_); }
  bool starts_with(std::string_view part) const { return rest().starts_with(part); }
  /// Returns the next byte without taking it; 0 at the end.
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  void skip(size_t bytes = 1) { at_ += bytes; }
  void skip_blanks() { at_ += lexicon_.blanks(rest()); }

  /// Returns what stands here without taking it; "" if there is no such thing. A name is also what continues one.
  std::string_view peek_name(bool first = true) const;
  std::string_view peek_operator() const;
  bool at_string() const { return !at_end() && lexicon_.quotes.find(text_[at_]) != std::string_view::npos; }

  /// Skips blanks, and then the operator `sign`, or the name `word`, if that follows. Return true if it followed.
  bool take(std::string_view sign);
  bool take_word(std::string_view word);
  /// Take a name, digits, or a number without a sign, as it is written; return "" if there is none here.
  std::string_view take_name();
  std::string_view take_digits();
  std::string_view take_number();

  /// A string as it is written, without its quotes. If it is not closed, the body ends with the text.
  struct String {
    std::string_view body;
    bool is_closed = false;
  };
  /// Takes the string whose quote is here. A backslash takes the character behind it along.
  String take_string();

 private:
  std::string_view text_;
  const Lexicon& lexicon_;
  size_t at_ = 0;
};

}  // namespace athanor

#pragma once
// Fields that are one of a few words. Each is an enumeration with one table of its words, from which parsing, messages
// of refusal, the list of choices in help and printing follow:
//
//   enum class Writers { kScattered, kFirst };
//   template <>
//   inline constexpr auto kWords<Writers> = words<Writers>({{"scattered", Writers::kScattered}, ...});
//
// A field of type Choice<Writers> is read and written as its word, and compared as a value.

#include <array>
#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace athanor::inline config {

template <class E>
struct Word {
  std::string_view word;
  E value;
};
template <class E, size_t N>
constexpr std::array<Word<E>, N> words(const Word<E> (&table)[N]) {
  return std::to_array(table);
}

/// The words of an enumeration, in the order in which messages list them; each enumeration has a specialisation.
template <class E>
inline constexpr std::array<Word<E>, 0> kWords = {};

template <class E>
std::vector<std::string> words_of() {
  std::vector<std::string> all;
  for (const auto& each : kWords<E>) all.emplace_back(each.word);
  return all;
}

/// Returns the value with this word, or nothing.
template <class E>
constexpr std::optional<E> find_value(std::string_view word) {
  for (const auto& each : kWords<E>) {
    if (each.word == word) return each.value;
  }
  return std::nullopt;
}

/// Returns the value with this word. @throws ConfigError if there is none.
template <class E>
E value_of(std::string_view word) {
  const auto value = find_value<E>(word);
  ATHANOR_CHECK(value, "expected one of {}, got {}", join(words_of<E>()), word);
  return *value;
}

/// Returns the word of a value.
template <class E>
std::string word_of(E value) {
  for (const auto& each : kWords<E>) {
    if (each.value == value) return std::string(each.word);
  }
  fail<Error>("bug: the value {} has no word", static_cast<int>(value));
}

/// A value that can also be given as its word.
template <class E>
class Choice {
 public:
  constexpr Choice(E value) : value_(value) {}  // NOLINT: a value stands for itself
  /// @throws ConfigError as value_of.
  template <std::convertible_to<std::string_view> Text>
  Choice(const Text& word) : value_(value_of<E>(word)) {}  // NOLINT: a word stands for its value

  constexpr operator E() const { return value_; }  // NOLINT: so that it is compared and switched on as its value
  std::string word() const { return word_of(value_); }

 private:
  E value_;
};

}  // namespace athanor::inline config

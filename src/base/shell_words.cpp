#include "base/shell_words.h"

#include <algorithm>
#include <string_view>

#include "base/text.h"

namespace athanor {
namespace {

bool is_plain_for_shells(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         std::string_view("-_./:=,+@%").find(c) != std::string_view::npos;
}

}  // namespace

std::string shell_word(const std::string& word) {
  if (!word.empty() && std::ranges::all_of(word, is_plain_for_shells)) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string shell_line(const std::vector<std::string>& words) {
  std::vector<std::string> quoted;
  for (const auto& word : words) quoted.push_back(shell_word(word));
  return join(quoted, " ");
}

}  // namespace athanor

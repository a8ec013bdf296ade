#include "base/shell_words.h"

#include <gtest/gtest.h>

namespace athanor::shell_words_test {
namespace {

TEST(ShellWords, QuotedWordsAreReadAsTheyAre) {
  EXPECT_EQ(shell_word("a=b"), "a=b");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("$(id)"), "'$(id)'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_line({"a b", "~", "*", "c"}), "'a b' '~' '*' c");
}

}  // namespace
}  // namespace athanor::shell_words_test

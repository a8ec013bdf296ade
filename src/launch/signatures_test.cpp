#include "launch/signatures.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "launch/line_prefix.h"

namespace athanor::launch::signatures_test {
namespace {

std::string refusal_of(const std::string& toml) {
  try {
    parse_signatures(toml, "mine.toml");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

// An entry in which one line is replaced or added.
std::string entry(const std::string& key, const std::string& line) {
  std::string text = "[[signature]]\n";
  for (const auto& [name, value] : std::vector<std::pair<std::string, std::string>>{{"name", "name = \"mine\"\n"},
                                                                                    {"cause", "cause = \"network\"\n"},
                                                                                    {"has", "has = \"abc\"\n"},
                                                                                    {"pattern", "pattern = 'abc'\n"}})
    if (name != key) text += value;
  return text + line + "\n";
}

// The first entry that matches a line. @param in_block  whether it may be one for further lines of a block.
const Signature* first_match(const SignatureSet& set, const std::string& line, bool in_block = false) {
  std::vector<uint32_t> candidates;
  set.find_candidates(line, candidates);
  PatternScratch scratch;
  PeeledLine peeled;
  peel(line, set, scratch, peeled);
  std::vector<Pattern::Group> groups;
  for (const uint32_t index : candidates) {
    const Signature& signature = set.at(index);
    const bool explains = signature.tells != Tells::kPlace && signature.tells != Tells::kBlock;
    if (explains && (in_block || signature.in.empty()) && signature.pattern.find(peeled.text, scratch, groups))
      return &signature;
  }
  return nullptr;
}

// Those explain nothing, and are read from any line.
bool matches_itself(const SignatureSet& set, const Signature& signature) {
  PatternScratch scratch;
  PeeledLine peeled;
  peel(signature.example, set, scratch, peeled);
  std::vector<Pattern::Group> groups;
  return signature.pattern.find(peeled.text, scratch, groups);
}

TEST(Signatures, EveryExampleIsFoundByItsOwnEntry) {
  const auto set = SignatureSet::load();
  size_t num_examples = 0;
  for (const Signature& signature : set.all()) {
    if (signature.example.empty()) {
      EXPECT_TRUE(signature.tells == Tells::kPlace || signature.tells == Tells::kTag ||
                  signature.tells == Tells::kPrefix)
          << signature.name;
      continue;
    }
    if (signature.tells == Tells::kPlace || signature.tells == Tells::kBlock) {
      EXPECT_TRUE(matches_itself(set, signature)) << signature.name;
      continue;
    }
    const Signature* found = first_match(set, signature.example, !signature.in.empty());
    ASSERT_NE(found, nullptr) << signature.name;
    EXPECT_EQ(found->name, signature.name) << signature.example;
    ++num_examples;
  }
  EXPECT_GE(num_examples, 150U);
}

TEST(Signatures, EntriesOfAUserComeFirst) {
  auto all = parse_signatures(entry("", "example = \"x: shepherd died from signal 9 abc\""), "mine.toml");
  auto own = parse_signatures(built_in_signatures(), "signatures.toml");
  std::move(own.begin(), own.end(), std::back_inserter(all));
  const SignatureSet set(std::move(all));
  EXPECT_EQ(first_match(set, "n1: shepherd died from signal 9 abc")->name, "mine");
  EXPECT_EQ(first_match(set, "n1: shepherd died from signal 9")->name, "pals-shepherd");
}

TEST(Signatures, ABrokenEntryIsNamedInOneLine) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {entry("", "haz = \"abc\""), "mine.toml: signature mine: unknown key haz (did you mean \"has\"?)"},
      {entry("cause", "cause = \"netwrk\""),
       "mine.toml: signature mine: unknown cause netwrk (did you mean \"network\"?)"},
      {entry("cause", ""), "mine.toml: signature mine: cause is missing"},
      {entry("", "tells = \"all\""), "mine.toml: signature mine: unknown tells all"},
      {entry("", "host = \"guilty\""), "mine.toml: signature mine: unknown host guilty"},
      {entry("", "host = \"suspect\""), "mine.toml: signature mine: reason: a text that tells why"},
      {entry("", "in = \"mine\""), "mine.toml: signature mine: in: there is no block mine in this file"},
      {"[[signature]]\nname = \"mine\"\ntells = \"prefix\"\npattern = 'abc'",
       "mine.toml: signature mine: the pattern of a prefix must begin with ^"},
      {entry("pattern", "pattern = '(abc'"), "mine.toml: signature mine: the pattern is not valid at byte 4"},
      {entry("pattern", "pattern = '(?<hots>abc)'"), "mine.toml: signature mine: unknown group hots"},
      {entry("has", "has = \"a\""), "mine.toml: signature mine: has: a is not a text of at least three bytes"},
      {entry("has", "has = [\"abc\", 3]"), "mine.toml: signature mine: has must be a text or a list of texts"},
      {entry("name", ""), "mine.toml: signature 1: name is missing"},
      {entry("", "") + entry("", ""), "mine.toml: signature mine: there are two signatures of this name"},
      {"", "mine.toml: there are no [[signature]] entries"},
      {"signature = 3", "mine.toml: there are no [[signature]] entries"},
      {"[[signatur]]", "mine.toml: unknown key signatur"},
      {"name = ", "mine.toml:1:"},
  };
  for (const auto& [toml, message] : cases) {
    const std::string refused = refusal_of(toml);
    EXPECT_EQ(refused.substr(0, message.size()), message);
    EXPECT_EQ(refused.find('\n'), refused.npos) << refused;
  }
}

TEST(Signatures, AnEchoNeverBlames) {
  EXPECT_NE(refusal_of(entry("", "tells = \"echo\"\nhost = \"at_fault\"")).find("only causes and signs"),
            std::string::npos);
}

TEST(Signatures, APatternThatBacktracksWithoutEndDoesNotMatch) {
  const Pattern pattern("(a+)+$b");
  PatternScratch scratch;
  std::vector<Pattern::Group> groups;
  EXPECT_FALSE(pattern.find(std::string(64, 'a') + "c", scratch, groups));
}

TEST(Signatures, WordsAreFoundInsideOneAnotherAndOverlapping) {
  const TriggerWords words({"abcd", "bc", "cde", "abcd"});
  std::vector<uint32_t> found;
  words.find_all("xxabcdexx", found);
  EXPECT_EQ(found, (std::vector<uint32_t>{0, 1, 2, 3}));
  EXPECT_EQ(words.find_end("xxabcdexx", 0), 5U);
  EXPECT_EQ(words.find_end("xxabcdexx", 4), 7U);
  EXPECT_EQ(words.find_end("ab", 0), std::string::npos);
}

}  // namespace
}  // namespace athanor::launch::signatures_test

// CPython's numbers, literals and texts, where the right result is known without CPython.

#include <gtest/gtest.h>

#include "base/testing/folder_test.h"
#include "tasks/python_literal.h"
#include "tasks/python_random.h"
#include "tasks/python_regex.h"
#include "tasks/python_repr.h"
#include "tasks/python_text.h"
#include "tasks/sha256.h"

namespace athanor::tasks::python_test {
namespace {

using Positions = std::vector<uint64_t>;

// Printed by CPython 3.11: Random(seed).sample(range(n), k), one call after the other.
TEST(PythonRandom, SamplesAsCPythonDoes) {
  PythonRandom random(1234);
  EXPECT_EQ(random.sample(1000, 5), (Positions{989, 796, 451, 119, 7}));
  EXPECT_EQ(random.sample(10, 3), (Positions{1, 0, 9}));
  const auto all = random.sample(21, 21);
  EXPECT_EQ(Positions(all.begin(), all.begin() + 5), (Positions{3, 11, 7, 0, 17}));
  EXPECT_EQ(random.sample(100000, 2), (Positions{8462, 87458}));
  EXPECT_EQ(PythonRandom((uint64_t{1} << 40) + 7).sample(50, 6), (Positions{39, 47, 40, 36, 45, 30}))
      << "a seed of two words";
}

TEST(PythonRepr, PrintsTheShortestNumberAndPythonsQuotes) {
  EXPECT_EQ(python_repr(0.1 + 0.2), "0.30000000000000004");
  EXPECT_EQ(python_repr(1e16), "1e+16");
  EXPECT_EQ(python_repr(1e15), "1000000000000000.0");
  EXPECT_EQ(python_repr(-0.0), "-0.0");
  EXPECT_EQ(python_repr(1e-4), "0.0001");
  EXPECT_EQ(python_repr(1e-5), "1e-05");
  EXPECT_EQ(python_repr(Value::of_text("it's")), "\"it's\"");
  EXPECT_EQ(python_repr(Value::of_text("it's \"x\"")), "'it\\'s \"x\"'");
  EXPECT_EQ(python_repr(Value::of_text("\n\x01\xC2\xA0\xE2\x80\x8B")), "'\\n\\x01\\xa0\\u200b'");
}

TEST(PythonJson, IsThatOfJsonDumps) {
  const nlohmann::ordered_json value{{"b", {1, 2.0}}, {"a", "é\x7f"}, {"e", nlohmann::ordered_json::array()}};
  EXPECT_EQ(python_json(value, {-1, true, true}), "{\"a\": \"\\u00e9\\u007f\", \"b\": [1, 2.0], \"e\": []}");
  EXPECT_EQ(python_json(value, {2, false, false}),
            "{\n  \"b\": [\n    1,\n    2.0\n  ],\n  \"a\": \"é\x7f\",\n  \"e\": []\n}");
}

TEST(PythonLiteral, ReadsWhatReprPrints) {
  const auto again = [](const std::string& text) {
    const auto value = read_literal(text);
    return value ? python_repr(*value) : "raises";
  };
  for (const char* text : {"['a', \"it's\", 'x\\ny']", "(1,)", "{'a': [1.5, None, True]}", "-3", "[]"})
    EXPECT_EQ(again(text), text);
  for (const char* text : {"", "x", "[1", "1 2", "'a", "01", "--1", "[,]"}) EXPECT_EQ(again(text), "raises") << text;
  EXPECT_THROW(read_literal("{1, 2}"), PythonError);
  EXPECT_THROW(read_literal("b'x'"), PythonError);
  EXPECT_THROW(read_literal(std::string(200, '[')), PythonError);
}

TEST(PythonText, CountsCharactersAndSplitsAsPythonDoes) {
  EXPECT_EQ(num_characters("é👍x"), 3);
  EXPECT_EQ(find_text("é👍x", "x", 0, 100), 2);
  EXPECT_EQ(split(" a  b\u00a0c "), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(split("a,,b", std::string_view(",")), (std::vector<std::string>{"a", "", "b"}));
  EXPECT_EQ(to_upper("straße ǆ"), "STRASSE Ǆ");
  EXPECT_EQ(to_lower("ΟΔΟΣ Σ"), "οδος σ");
  EXPECT_EQ(capitalize("éCOLE"), "École");
  EXPECT_EQ(count_words(" two  words"), 3) << "re.split gives an empty part before a space at the beginning";
}

TEST(PythonRegex, ReplacesEmptyMatchesAsPythonDoes) {
  EXPECT_EQ(regex_replace("abc", "x*", "-"), "-a-b-c-");
  EXPECT_EQ(regex_replace("[title] a [b] c", "\\[.*?\\]", ""), " a  c");
  EXPECT_EQ(regex_replace("a b", "(\\w) (\\w)", "\\2\\g<1>"), "ba");
  EXPECT_THROW(regex_replace("a", "(?i)a", ""), PythonError);
  EXPECT_THROW(regex_replace("a", "(a", ""), PythonError);
}

// FIPS 180-4 and its examples.
TEST(Sha256, IsThatOfTheStandardsExamples) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

}  // namespace
}  // namespace athanor::tasks::python_test

#include <algorithm>

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/random.h"
#include "base/text.h"
#include "documents/json_text.h"

namespace athanor::json_text_test {
namespace {

TEST(JsonScan, FindsTheFieldAndUnescapesIt) {
  EXPECT_EQ(
      scan_json_text(R"( {"id": [1, {"text": "no"}], "text" : "a\n\"\u00e9\ud83d\ude00\/é" , "x":-1.5} )", "text"),
      "a\n\"é\U0001F600/é");
  EXPECT_EQ(scan_json_text(R"({"text":""})", "text"), "");
  EXPECT_EQ(scan_json_text(R"({"te\u0078t":"a"})", "text"), "a");
  EXPECT_EQ(scan_json_text(R"({"a":null,"b":true,"c":false,"d":{},"e":[],"f":"ü"})", "f"), "ü");
}

TEST(JsonScan, LeavesWhatIsUnusualOrWrongToTheParser) {
  for (const auto* json : {"",
                           "{}",
                           "[]",
                           "\"text\"",
                           R"({"text":1})",
                           R"({"text":"a"}x)",
                           R"({"text":"a"},)",
                           R"({"text":"a")",
                           R"({"text":"a)",
                           R"({"text":"a\)",
                           R"({"text":"a\q"})",
                           R"({"text":"\ud800"})",
                           R"({"text":"\udc00\ud800"})",
                           R"({"text":"\u12g4"})",
                           R"({"text":"a","text":"b"})",
                           R"({"text":"a","x":01})",
                           R"({"text":"a","x":1.})",
                           R"({"text":"a","x":-})",
                           R"({"text":"a","x":1e999})",
                           R"({"text":"a","x":tru})",
                           R"({"text":"a",})",
                           R"({,"text":"a"})",
                           R"({"text" "a"})",
                           "{\"text\":\"a\tb\"}",
                           "{\"text\":\"a\n\"}",
                           R"({"x":"a"})",
                           R"({"x":{"text":"a"}})",
                           R"({"text":"a","x":[1 2]})",
                           R"({"text":"a","x":123456789012345678901})"}) {
    EXPECT_EQ(scan_json_text(json, "text"), std::nullopt) << json;
  }
}

TEST(JsonScan, WhatItLeavesForItsDepthIsReadByTheParser) {
  const auto json = R"({"x":)" + std::string(2000, '[') + std::string(2000, ']') + R"(,"text":"a"})";
  EXPECT_EQ(scan_json_text(json, "text"), std::nullopt);
  EXPECT_EQ(find_json_text(json, "text", false).text, "a");
}

TEST(JsonScan, EverythingAtEveryPlaceOfEightBytesIsSeen) {
  for (size_t length = 0; length < 40; ++length) {
    for (size_t at = 0; at < length; ++at) {
      for (const std::string odd : {"\\n", "\\\"", "é", "\\u00e9"}) {
        auto inside = std::string(length, 'x').replace(at, 1, odd);
        const auto json = "{\"text\":\"" + inside + "\"}";
        EXPECT_EQ(scan_json_text(json, "text"), nlohmann::json::parse(json)["text"].get<std::string>());
      }
      auto control = std::string(length, 'x');
      control[at] = '\x1f';
      EXPECT_EQ(scan_json_text("{\"text\":\"" + control + "\"}", "text"), std::nullopt);
    }
  }
}

TEST(JsonScan, EqualsTheParserOnRowsWithRandomDamage) {
  const std::string good =
      R"({"id":"a1","n":[0,-2.5,10,{"k":null}],"text":"line\nof \"text\" \u00e9\ud83d\ude00 é","m":{"text":true,"z":""}})";
  const CounterRandom random(1, "json");
  const std::string odd = "\"\\{}[],:0-.eEtfnu \n\tdD8x";
  size_t num_accepted = 0;
  for (uint64_t round = 0; round < 60000; ++round) {
    std::string json = good;
    const uint64_t changes = random.below(round * 16, 3);
    for (uint64_t i = 0; i < changes; ++i) {
      const size_t at = random.below(round * 16 + 4 * i + 1, json.size());
      const std::string by(1, odd[random.below(round * 16 + 4 * i + 2, odd.size())]);
      const size_t length = random.below(round * 16 + 4 * i + 3, 3);
      json.replace(at, std::min(length, json.size() - at), random.below(round * 16 + 4 * i + 4, 4) ? by : "");
    }
    if (find_invalid_utf8(json)) continue;
    const auto fast = scan_json_text(json, "text");
    const auto slow = parse_json_text(json, "text", false);
    if (!fast) continue;
    ++num_accepted;
    ASSERT_EQ(slow.cause, nullptr) << json << "\n" << slow.message;
    ASSERT_EQ(*fast, slow.text) << json;
  }
  EXPECT_GT(num_accepted, 20000u);
}

}  // namespace
}  // namespace athanor::json_text_test

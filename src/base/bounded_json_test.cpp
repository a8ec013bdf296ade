#include "base/bounded_json.h"

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace athanor::bounded_json_test {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

std::string nested(int depth, const std::string& open = "[", const std::string& close = "]") {
  std::string text;
  for (int i = 0; i < depth; ++i) text += open;
  text += "1";
  for (int i = 0; i < depth; ++i) text += close;
  return text;
}

TEST(BoundedJson, HasTheValuesOfTheLibrarysParser) {
  for (const char* text :
       {"1", "-1", "18446744073709551615", "1.5e3", "null", "true", "\"a\\u00e9\\n\"", "[]", "{}", " [1,[2,{}],[]] ",
        R"({"b":1,"a":{"c":[null,{"d":false}]},"b":{"e":2}})", R"({"":[{"x":1},{"x":2}],"y":"z"})"}) {
    EXPECT_EQ(read_json(text), json::parse(text)) << text;
    EXPECT_EQ(read_ordered_json(text).dump(), ordered_json::parse(text).dump()) << text;
  }
}

TEST(BoundedJson, WhatIsNoJsonIsDiscardedWithItsPlace) {
  for (const char* text : {"", " ", "[1,]", "{\"a\":}", "[1", "nul", "[1] x", "{\"a\" 1}", "\"\x01\""}) {
    JsonFault fault;
    EXPECT_TRUE(read_json(text, &fault).is_discarded()) << text;
    EXPECT_GT(fault.byte, 0) << text;
    EXPECT_TRUE(read_ordered_json(text).is_discarded()) << text;
  }
  JsonFault fault;
  EXPECT_TRUE(read_json("[1e999]", &fault).is_discarded());
  EXPECT_EQ(fault.reason, "a number is out of range");
}

TEST(BoundedJson, NoValueIsDeeperThanItsBound) {
  EXPECT_EQ(read_json(nested(kMaxJsonDepth)), json::parse(nested(kMaxJsonDepth)));
  JsonFault fault;
  EXPECT_TRUE(read_json(nested(kMaxJsonDepth + 1), &fault).is_discarded());
  EXPECT_EQ(fault.reason, "nested deeper than 64 levels");
  EXPECT_TRUE(read_json(nested(300'000)).is_discarded());
  EXPECT_TRUE(read_ordered_json(nested(300'000, "{\"a\":", "}")).is_discarded());
  EXPECT_TRUE(read_json(std::string(300'000, '[')).is_discarded());
  EXPECT_THROW(parse_json(nested(300'000), "a.json"), DataError);
}

TEST(BoundedJson, TimeIsLinearInTheMembersOfAnObject) {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i) text += "\"key" + std::to_string(i) + "\":[" + std::to_string(i) + "],";
  text.back() = '}';
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(read_ordered_json(text).size(), 200'000);
  EXPECT_EQ(read_json(text).size(), 200'000);
  // 0.3 s here; with a search of all members at each new one, more than a minute.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

}  // namespace
}  // namespace athanor::bounded_json_test

#include "documents/json_fields.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/bounded_json.h"
#include "base/error.h"

namespace athanor::json_fields_test {
namespace {

using nlohmann::json;

json fields(const std::string& row) { return read_json_fields(row, {"a", "b", "é"}); }

TEST(JsonFields, AreThoseOfTheParserWhateverStandsAroundThem) {
  for (const char* row :
       {R"({"a":1,"x":"y","b":[1,{"a":2}]})", R"( { "x" : "\\" , "a" : "\"}," } )", R"({})",
        R"({"x":{"a":"]}"},"b":null})", R"({"a":"\\\"","b":-1.5e3})", R"({"x":true,"a":false})", R"({"a":[],"b":{}})",
        R"({"a":"\u00e9","é":"\n"})", R"({"a":1,"a":2})", R"({"x":"\\\\","a":"\\\\\""})"}) {
    auto expected = json::parse(row);
    for (auto it = expected.begin(); it != expected.end();) {
      it = it.key() == "x" ? expected.erase(it) : std::next(it);
    }
    EXPECT_EQ(fields(row), expected) << row;
  }
}

TEST(JsonFields, AnEscapedNameIsFound) { EXPECT_EQ(fields(R"({"x":0,"\u0061":5})"), json({{"a", 5}})); }

TEST(JsonFields, WhatOnlyPythonWritesIsPassedOverInOtherFields) {
  EXPECT_EQ(fields(R"({"x":NaN,"a":1,"y":"\ud83d","z":[-Infinity,1e999]})"), json({{"a", 1}}));
  for (const char* row : {R"({"a":NaN})", R"({"a":"\ud83d"})"}) EXPECT_THROW(fields(row), DataError) << row;
}

TEST(JsonFields, WhatIsNoObjectHasNone) {
  EXPECT_EQ(fields("[1]"), json::object());
  EXPECT_EQ(fields("\"a\""), json::object());
}

TEST(JsonFields, WhatIsNoJsonIsRefused) {
  for (const char* row :
       {"", "{", "{\"a\":}", "{\"a\":1", "{\"a\" 1}", "{\"a\":nonsense}", "{\"a\":\"x}", "{\"a\":[1}"}) {
    EXPECT_THROW(fields(row), DataError) << row;
  }
}

TEST(JsonFields, AWantedMemberHasABoundedDepthAndTheOthersHaveNone) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(fields("{\"x\":" + nested(900) + ",\"a\":1}"), json({{"a", 1}}));
  EXPECT_NO_THROW(fields("{\"a\":" + nested(kMaxJsonDepth) + "}"));
  EXPECT_THROW(fields("{\"a\":" + nested(kMaxJsonDepth + 1) + "}"), DataError);
  EXPECT_THROW(fields("{\"a\":" + nested(300'000) + "}"), DataError);
}

}  // namespace
}  // namespace athanor::json_fields_test

#include "smoke/smoke_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "base/error.h"
#include "base/testing/folder_test.h"
#include "smoke/lines_trace.h"
#include "smoke/smoke_difference.h"
#include "smoke/testing/small_trace.h"

namespace athanor::smoke_trace_test {
namespace {

// With infinity, a negative zero, and more values than fit on a line of a LinesTrace.
SmokeTrace with_values() {
  SmokeTrace trace = small_trace();
  trace.values = {0.5, -0.0, std::numeric_limits<double>::infinity(), 1, 2, 3, 4, 5, 1e-300};
  return trace;
}

// The text of a trace as an older build writes it.
std::string text_in_lines(const SmokeTrace& trace) {
  std::string text = "athanor-smoke-trace 1\n";
  for (const auto& [name, value] : trace.facts) text += fmt::format("fact {} {}\n", name, value);
  for (const TracedModel& model : trace.models) {
    text += fmt::format("model {}\n", model.name);
    for (const TracedTensor& t : model.tensors)
      text += fmt::format("{} {} {} {} {} {}\n", t.step, t.phase, t.name, t.shape, t.type, t.hash);
  }
  if (!trace.values.empty()) text += fmt::format("values {}\n", trace.values.size());
  for (size_t i = 0; i < trace.values.size(); ++i)
    text += fmt::format("{:016x}{}", std::bit_cast<uint64_t>(trace.values[i]),
                        (i + 1) % 8 == 0 || i + 1 == trace.values.size() ? '\n' : ' ');
  return text + fmt::format("end {}\n", trace.num_tensors());
}

std::vector<std::string> texts_of(const SmokeTrace& trace) { return {text_of(trace), text_in_lines(trace)}; }

void expect_equal(const SmokeTrace& found, const SmokeTrace& trace) {
  EXPECT_EQ(found.facts, trace.facts);
  ASSERT_EQ(found.models.size(), trace.models.size());
  for (size_t i = 0; i < trace.models.size(); ++i) {
    EXPECT_EQ(found.models[i].name, trace.models[i].name);
    EXPECT_EQ(found.models[i].tensors, trace.models[i].tensors);
  }
  EXPECT_EQ(found.values, trace.values);
}

TEST(SmokeTrace, ItsTextReadsBackAsItWas) {
  for (const std::string& text : texts_of(with_values())) {
    const SmokeTrace again = parse_trace(text, "t");
    expect_equal(again, with_values());
    EXPECT_TRUE(std::signbit(again.values[1]));
  }
}

TEST(SmokeTrace, ATextThatIsCutOffAnywhereIsRefused) {
  for (const std::string& text : texts_of(with_values())) {
    for (size_t size = 0; size + 1 < text.size(); ++size)
      EXPECT_THROW(parse_trace(text.substr(0, size), "t"), DataError) << size;
  }
}

TEST(SmokeTrace, ALineOfAnotherKindIsNamed) {
  std::string text = text_in_lines(small_trace());
  text.replace(text.find("1 gradient"), 10, "one gradie");
  EXPECT_TRUE(message_of<DataError>([&] { parse_trace(text, "t"); }).starts_with("t:8: "));
  EXPECT_THROW(parse_trace(text_in_lines(small_trace()) + "x", "t"), DataError);
  EXPECT_THROW(parse_trace("athanor-smoke-trace 1\nvalues 18446744073709551615\nend 0\n", "t"), DataError);
}

TEST(SmokeTrace, JsonOfAnotherKindAndOfALaterFormatIsRefused) {
  for (const char* text : {"{}", R"({"format": 2})", R"({"format": "athanor-smoke-trace 2"})",
                           R"({"format": "athanor-smoke-trace 2", "facts": [], "models": 1, "values": []})",
                           R"({"format": "athanor-smoke-trace 2", "facts": [], "models": [], "values": [0.5]})",
                           R"({"format": "athanor-smoke-trace 2", "facts": [], "models": [{"name": "m",
                              "tensors": [["1", "loss", "sum", "1", "float64", "aa"]]}], "values": []})"})
    EXPECT_EQ(message_of<DataError>([&] { parse_trace(text, "t"); }), "t: this is no trace of `athanor smoke`") << text;
  EXPECT_SAYS(message_of<DataError>([&] { parse_trace(R"({"format": "athanor-smoke-trace 3"})", "t"); }),
              "t: its format is athanor-smoke-trace 3, and this build reads athanor-smoke-trace 2");
  EXPECT_THROW(parse_trace(text_of(small_trace()) + "x", "t"), DataError);
}

TEST(SmokeTrace, AnyDamagedByteIsReadAsAnotherTraceOrRefused) {
  SmokeTrace trace = small_trace();
  trace.values = {0.5, 1, 2};
  for (const std::string& text : texts_of(trace)) {
    for (size_t at = 0; at < text.size(); ++at) {
      for (const char byte : {' ', '\n', '9', 'x', '\0', '-', '"', ']'}) {
        std::string damaged = text;
        damaged[at] = byte;
        try {
          const SmokeTrace read = parse_trace(damaged, "t");
          for (const TracedModel& model : read.models) first_difference(trace.models[0], model);
        } catch (const DataError&) {
        }
      }
    }
  }
}

// Both files are of the build from before a trace was JSON; the first is cut to two steps of each model.
TEST(SmokeTrace, WhatAnOlderBuildHasWrittenReadsAsItWas) {
  const char* source = std::getenv("ATHANOR_SOURCE_DIR");
  if (!source) GTEST_SKIP() << "ATHANOR_SOURCE_DIR is not set";
  const auto folder = std::filesystem::path(source) / "tests/smoke_traces";
  const std::string text = read_file(folder / "lines.txt");
  const SmokeTrace whole = parse_trace(text, "t");
  EXPECT_EQ(text_in_lines(whole), text);
  EXPECT_EQ(whole.facts.back(), std::pair(std::string("products"), std::string("float32 library, bfloat16 library")));
  EXPECT_EQ(whole.find_model("dense")->tensors.size(), 150u);
  EXPECT_EQ(whole.find_model("sparse")->tensors.size(), 205u);
  const std::string single = read_file(folder / "tensor.txt");
  const SmokeTrace tensor = parse_trace(single, "t");
  EXPECT_EQ(text_in_lines(tensor), single);
  EXPECT_EQ(tensor.values.size(), 128u);
  const TracedTensor& same = tensor.models.at(0).tensors.at(0);
  EXPECT_EQ(std::ranges::count(whole.find_model("sparse")->tensors, same), 1);
}

TEST(SmokeTrace, APlaceIsReadFromItsText) {
  const TracedPlace place{"dense", 3, "forward.0", "model.layers.1.mlp"};
  EXPECT_EQ(TracedPlace::parse(place.text()), place);
  for (const char* text :
       {"", "dense", "dense:3:forward.0", "dense:x:forward.0:a", "dense:-1:forward.0:a", ":1:a:b", "dense:1:a:"})
    EXPECT_THROW(TracedPlace::parse(text), ConfigError) << text;
}

}  // namespace
}  // namespace athanor::smoke_trace_test

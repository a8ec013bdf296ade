#include "base/span_log.h"

#include <gtest/gtest.h>

#include <thread>

namespace athanor::span_log_test {
namespace {

Span named(const char* name, int64_t begin_ns = 0, int64_t end_ns = 0) {
  return {Span::Row::kTraining, name, "", begin_ns, end_ns};
}

TEST(SpanLog, KeepsNothingBeforeItsStartAndAfterItsStop) {
  SpanLog log;
  log.add(named("early", 1, 2));
  const size_t early = log.open(named("early"));
  log.start();
  log.close(early);
  log.add(named("kept", span_clock_ns(), span_clock_ns()));
  const auto spans = log.stop();
  log.add(named("late", span_clock_ns(), span_clock_ns()));
  ASSERT_EQ(spans.spans.size(), 1u);
  EXPECT_EQ(spans.spans[0].name, "kept");
  EXPECT_TRUE(log.stop().spans.empty());
}

TEST(SpanLog, ASpanLastsUntilItIsClosedAndElseUntilTheStop) {
  SpanLog log;
  log.start();
  const size_t closed = log.open(named("closed"));
  log.open(named("open"));
  log.close(closed);
  const int64_t between = span_clock_ns();
  const auto spans = log.stop();
  EXPECT_LE(spans.spans[0].end_ns, between);
  EXPECT_EQ(spans.spans[1].end_ns, spans.end_ns);
  EXPECT_GE(spans.spans[1].end_ns, between);
}

TEST(SpanLog, AnIndexFromBeforeTheLastStartClosesNothing) {
  SpanLog log;
  log.start();
  const size_t old = log.open(named("old"));
  log.start();
  log.open(named("new"));
  log.close(old);
  const auto spans = log.stop();
  ASSERT_EQ(spans.spans.size(), 1u);
  EXPECT_EQ(spans.spans[0].end_ns, spans.end_ns);
}

TEST(SpanLog, WhatBeganBeforeTheStartBeginsWithItAndWhatEndedBeforeIsLeftOut) {
  SpanLog log;
  const int64_t before = span_clock_ns();
  log.start();
  log.add(named("over", before, before));
  log.add(named("underway", before, span_clock_ns()));
  const auto spans = log.stop();
  ASSERT_EQ(spans.spans.size(), 1u);
  EXPECT_EQ(spans.spans[0].begin_ns, spans.begin_ns);
}

TEST(SpanLog, CountsWhatItDoesNotKeep) {
  SpanLog log;
  log.start();
  for (size_t i = 0; i < SpanLog::kMostSpans + 3; ++i) log.add(named("x", span_clock_ns(), span_clock_ns()));
  const auto spans = log.stop();
  EXPECT_EQ(spans.spans.size(), SpanLog::kMostSpans);
  EXPECT_EQ(spans.num_left_out, 3);
}

TEST(SpanLog, KeepsWhatIsFewBeyondTheLimit) {
  SpanLog log;
  log.start();
  for (size_t i = 0; i < SpanLog::kMostSpans + 1; ++i) log.add(named("x", span_clock_ns(), span_clock_ns()));
  log.close(log.open_always(named("phase")));
  const auto spans = log.stop();
  EXPECT_EQ(spans.spans.back().name, "phase");
  EXPECT_EQ(spans.num_left_out, 1);
}

TEST(SpanLog, TakesSpansOfSeveralThreads) {
  SpanLog log;
  log.start();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) log.close(log.open(named("x")));
    });
  for (auto& thread : threads) thread.join();
  const auto spans = log.stop();
  EXPECT_EQ(spans.spans.size(), 2000u);
  for (const Span& span : spans.spans) EXPECT_LE(span.begin_ns, span.end_ns);
}

}  // namespace
}  // namespace athanor::span_log_test

#include <numeric>

#include "parallel/trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "comm/thread_ranks.h"

namespace athanor::trace_test {
namespace {

using Json = nlohmann::json;

Layout layout_of(int ranks, int pipeline) {
  RunConfig config;
  config.model.num_hidden_layers = 128;
  config.parallelism.pipeline_parallel_degree = pipeline;
  config.train.micro_batch_size = 1;
  config.train.global_batch_size = 12'288;
  return {config, ranks};
}

TEST(Trace, ShowsAllRanksOfSmallJobsAndAPipelineAndSomeOthersOfLargeOnes) {
  std::vector<int> all(8);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(traced_ranks(layout_of(8, 2)), all);
  const Layout large = layout_of(12'288, 16);
  const std::vector<int> shown = traced_ranks(large);
  EXPECT_EQ(shown.size(), kMostTracedRanks);
  EXPECT_TRUE(std::ranges::is_sorted(shown));
  for (const int rank : large.group_of(GroupKind::kPipeline, 0)) EXPECT_TRUE(std::ranges::binary_search(shown, rank));
  EXPECT_GT(shown.back(), 12'000);
}

TEST(Trace, ACallIsAFlightFromItsStartAndAWaitOfItsRank) {
  comm::run_ranks(2, [](comm::World& world) {
    const auto log = std::make_shared<SpanLog>();
    comm::Communicator& all = world.all();
    all.record_spans(log);
    const Tensor x = at::ones({1000});
    all.all_reduce(x).wait();
    log->start();
    comm::Pending pending = all.all_reduce(x);
    pending.wait();
    if (world.rank() == 0) all.send(x, 1).wait();
    if (world.rank() == 1) all.receive(x, 0).wait();
    const SpanLog::Spans spans = log->stop();
    all.record_spans(nullptr);
    const Json events = Json::parse("[" + trace_events(spans, {spans.begin_ns}, world.rank(), "host \"a\"") + "]");
    std::map<std::string, std::vector<Json>> of;
    for (const Json& event : events)
      of[event["ph"].get<std::string>() + " " + event["name"].get<std::string>()].push_back(event);
    EXPECT_EQ(of["M process_name"][0]["args"]["name"], fmt::format("rank {} (host \"a\")", world.rank()));
    const std::string call = all.name() + ": all_reduce";
    ASSERT_EQ(of["b " + call].size(), 1u);
    ASSERT_EQ(of["X wait: " + call].size(), 1u);
    const Json &begin = of["b " + call][0], &end = of["e " + call][0], &wait = of["X wait: " + call][0];
    EXPECT_EQ(begin["args"]["bytes"], 4000);
    EXPECT_EQ(begin["id"], end["id"]);
    EXPECT_LE(begin["ts"].get<double>(), wait["ts"].get<double>());
    // It is complete before its rank notices.
    EXPECT_LE(end["ts"].get<double>(), wait["ts"].get<double>() + wait["dur"].get<double>() + 1e-3);
    const std::string message = all.name() + (world.rank() == 0 ? ": send" : ": receive");
    ASSERT_EQ(of["b " + message].size(), 1u);
    EXPECT_EQ(of["b " + message][0]["args"]["peer"], 1 - world.rank());
  });
}

TEST(Trace, NoSpanOfAnyRankBeginsBeforeTheOrigin) {
  comm::run_ranks(3, [](comm::World& world) {
    const int64_t first = span_clock_ns() - 1'000'000 * (world.rank() + 1);
    const TraceClock clock = agree_on_clock(world.all(), first);
    EXPECT_LE(clock.zero_ns, first);
  });
}

}  // namespace
}  // namespace athanor::trace_test

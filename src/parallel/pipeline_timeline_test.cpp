#include "parallel/pipeline_timeline.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <tuple>

#include "base/files.h"
#include "comm/thread_ranks.h"
#include "parallel/testing/toy_stage.h"

namespace athanor::pipeline_timeline_test {
namespace {

using Json = nlohmann::json;

TEST(PipelineTimeline, IsOfAllRanksOnOneClockInWhichNothingBeginsBeforeItsInput) {
  const Schedule schedule = make_schedule("1f1b", 3, 1, 4);
  const auto folder = std::filesystem::path(testing::TempDir()) / fmt::format("athanor_timeline_{}", ::getpid());
  std::filesystem::create_directories(folder);
  comm::run_ranks(3, [&](comm::World& world) {
    auto stages = toy::stages_of(world.rank(), 3, 1);
    Pipeline pipeline(toy::pointers(stages), world.all());
    pipeline.set_schedule(schedule);
    pipeline.forward_backward(toy::microbatches(4));
    const Timeline timeline = gather_timeline(pipeline, world.all());
    ASSERT_EQ(timeline.size(), world.rank() == 0 ? 3u : 0u);
    if (world.rank() != 0) return;
    std::map<std::tuple<Work, int, int>, const TimedAction*> by_action;
    double first_s = 1;
    for (int r = 0; r < 3; ++r) {
      ASSERT_EQ(timeline[static_cast<size_t>(r)].size(), 8u);
      for (const TimedAction& timed : timeline[static_cast<size_t>(r)]) {
        by_action[{timed.action.work, timed.action.microbatch, r}] = &timed;
        first_s = std::min(first_s, timed.begin_s);
      }
    }
    EXPECT_EQ(first_s, 0);
    constexpr double kDigit = 2e-9;  // the trace has nanoseconds
    for (const auto& [key, timed] : by_action) {
      const auto [work, microbatch, rank] = key;
      const auto before = by_action.find({work, microbatch, work == Work::kForward ? rank - 1 : rank + 1});
      if (before != by_action.end()) {
        EXPECT_GE(timed->begin_s, before->second->end_s - kDigit) << microbatch << " on rank " << rank;
      }
    }
    write_timeline(timeline, schedule, folder, 7);
  });
  const auto report = Json::parse(read_file(folder / "pipeline-step-7.json"));
  EXPECT_EQ(report["schedule"], "1f1b");
  EXPECT_EQ(report["timeline"][2][1]["action"], "B0");
  EXPECT_NEAR(report["ideal_bubble"].get<double>(), 2.0 / 6, 1e-12);
  EXPECT_NE(read_file(folder / "pipeline-step-7.svg").find("1f1b, 3 ranks, 4 microbatches: bubble "),
            std::string::npos);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace athanor::pipeline_timeline_test

#include "parallel/pipeline.h"

#include <gtest/gtest.h>

#include <mutex>
#include <random>
#include <set>
#include <tuple>

#include "base/error.h"
#include "comm/thread_ranks.h"
#include "parallel/testing/toy_stage.h"

namespace athanor::pipeline_test {
namespace {

struct Case {
  const char* schedule;
  int ranks, chunks, microbatches;
};

const std::vector<Case> kCases = {
    {"gpipe", 1, 1, 3},
    {"1f1b", 1, 1, 3},
    {"gpipe", 2, 1, 1},
    {"gpipe", 2, 1, 4},
    {"gpipe", 4, 1, 3},
    {"1f1b", 2, 1, 2},
    {"1f1b", 2, 1, 5},
    {"1f1b", 3, 1, 3},
    {"1f1b", 4, 1, 9},
    {"1f1b", 6, 1, 7},
    {"interleaved_1f1b", 2, 2, 2},
    {"interleaved_1f1b", 2, 2, 6},
    {"interleaved_1f1b", 2, 3, 4},
    {"interleaved_1f1b", 3, 2, 6},
    {"interleaved_1f1b", 4, 3, 8},
};

std::string text_of(const Case& c) {
  return fmt::format("{} of {} ranks, {} chunks, {} microbatches", c.schedule, c.ranks, c.chunks, c.microbatches);
}

/// The results of all ranks together.
struct Outcome {
  std::vector<Tensor> gradients;  ///< by stage
  LossParts parts;
  int64_t bytes_sent = 0;
};

// A test that hangs ends, and reports where.
comm::WorldOptions impatient(int timeout_s = 60) {
  comm::WorldOptions options;
  options.timeout = std::chrono::seconds(timeout_s);
  return options;
}

// Computes one microbatch after the other through all stages.
Outcome one_process(const std::vector<Microbatch>& microbatches, int num_stages) {
  auto stages = toy::stages(num_stages);
  Outcome outcome;
  for (int m = 0; m < static_cast<int>(microbatches.size()); ++m) {
    const Microbatch& microbatch = microbatches[static_cast<size_t>(m)];
    Tensor x = microbatch.tokens;
    for (auto& stage : stages) x = stage->forward(m, x, &microbatch.labels);
    Tensor dy;
    for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage) dy = (*stage)->backward(m, dy, nullptr);
    for (auto& stage : stages) outcome.parts += stage->take_parts(m);
  }
  for (auto& stage : stages) outcome.gradients.push_back(stage->gradient);
  return outcome;
}

Outcome pipelined(const Schedule& schedule, const std::vector<Microbatch>& microbatches,
                  const comm::ThreadNetwork& network = {}) {
  Outcome outcome;
  outcome.gradients.resize(static_cast<size_t>(schedule.num_stages()));
  std::mutex mutex;
  comm::run_ranks(
      schedule.ranks,
      [&](comm::World& world) {
        auto stages = toy::stages_of(world.rank(), schedule.ranks, schedule.chunks);
        Pipeline pipeline(toy::pointers(stages), world.all());
        pipeline.set_schedule(schedule);
        const LossParts parts = pipeline.forward_backward(microbatches);
        std::lock_guard lock(mutex);
        outcome.parts += parts;
        for (auto& stage : stages) outcome.gradients[static_cast<size_t>(stage->number)] = stage->gradient;
        const auto sent = world.all().traffic().bytes_of.find(Collective::kSend);
        if (sent != world.all().traffic().bytes_of.end()) outcome.bytes_sent += sent->second;
      },
      impatient(), network);
  return outcome;
}

Outcome pipelined(const Case& c, const std::vector<Microbatch>& microbatches, const comm::ThreadNetwork& network = {}) {
  return pipelined(make_schedule(c.schedule, c.ranks, c.chunks, c.microbatches), microbatches, network);
}

/// Does whatever can be done next, in any order: forwards of each stage as they come, backwards ascending.
Schedule any_schedule(int ranks, int chunks, int microbatches, std::mt19937& draw) {
  Schedule schedule{"drawn", ranks, chunks, microbatches, {}};
  schedule.actions.resize(static_cast<size_t>(ranks));
  const int last = schedule.num_stages() - 1;
  std::set<std::tuple<Work, int, int>> done;  // with stage and microbatch
  const auto is_done = [&](Work work, int stage, int m) { return done.contains({work, stage, m}); };
  const auto can_start = [&](Work work, int stage, int m) {
    if (work == Work::kForward) return stage == 0 || is_done(work, stage - 1, m);
    return is_done(Work::kForward, stage, m) && (stage == last || is_done(work, stage + 1, m)) &&
           (m == 0 || is_done(work, stage, m - 1));
  };
  const size_t all = 2 * static_cast<size_t>(schedule.num_stages()) * static_cast<size_t>(microbatches);
  while (done.size() < all) {
    const auto drawn = [&](int count) { return static_cast<int>(draw() % static_cast<unsigned>(count)); };
    const Work work = drawn(2) == 0 ? Work::kForward : Work::kBackward;
    const int stage = drawn(last + 1), m = drawn(microbatches);
    if (is_done(work, stage, m) || !can_start(work, stage, m)) continue;
    done.insert({work, stage, m});
    schedule.actions[static_cast<size_t>(stage % ranks)].push_back({work, m, stage / ranks});
  }
  return schedule;
}

void expect_equal(const Outcome& got, const Outcome& expected) {
  EXPECT_TRUE(at::equal(got.parts.sums, expected.parts.sums));
  EXPECT_EQ(got.parts.num_targets, expected.parts.num_targets);
  ASSERT_EQ(got.gradients.size(), expected.gradients.size());
  for (size_t s = 0; s < got.gradients.size(); ++s) {
    EXPECT_TRUE(at::equal(got.gradients[s], expected.gradients[s])) << "stage " << s;
  }
}

TEST(Pipeline, EverySchedulesGradientsHaveTheBitsOfOneProcess) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(text_of(c));
    const auto microbatches = toy::microbatches(c.microbatches);
    expect_equal(pipelined(c, microbatches), one_process(microbatches, c.ranks * c.chunks));
  }
}

TEST(Pipeline, MessagesMayTakeAsLongAsTheyWant) {
  comm::ThreadNetwork slow;
  slow.max_delay_polls = 12;
  for (const Case& c : kCases) {
    SCOPED_TRACE(text_of(c));
    const auto microbatches = toy::microbatches(c.microbatches);
    expect_equal(pipelined(c, microbatches, slow), one_process(microbatches, c.ranks * c.chunks));
  }
}

TEST(Pipeline, WhateverScheduleCanBePlayedRunsToTheEnd) {
  std::mt19937 draw(1);
  comm::ThreadNetwork slow;
  slow.max_delay_polls = 5;
  for (int i = 0; i < 24; ++i) {
    const Schedule schedule = any_schedule(2 + i % 3, 1 + i % 2, 1 + i % 5, draw);
    SCOPED_TRACE(describe(schedule));
    const auto microbatches = toy::microbatches(schedule.microbatches);
    expect_equal(pipelined(schedule, microbatches, slow), one_process(microbatches, schedule.num_stages()));
  }
}

TEST(Pipeline, SendsAnActivationAndAGradientOverEachBoundaryForEachMicrobatch) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(text_of(c));
    const int64_t boundaries = c.ranks == 1 ? 0 : c.ranks * c.chunks - 1;
    EXPECT_EQ(pipelined(c, toy::microbatches(c.microbatches)).bytes_sent,
              2 * toy::kActivationBytes * c.microbatches * boundaries);
  }
}

TEST(Pipeline, ScoresOnTheLastRankWhatOneProcessDoes) {
  for (const int count : {1, 2, 5}) {
    for (const Case& c : kCases) {
      SCOPED_TRACE(text_of(c));
      auto microbatches = toy::microbatches(count);
      microbatches.back() = toy::microbatch(77, 3, 2);  // it has a different size
      auto stages = toy::stages(c.ranks * c.chunks);
      std::vector<TokenScores> expected;
      for (const Microbatch& microbatch : microbatches) {
        Tensor x = microbatch.tokens;
        for (size_t s = 0; s + 1 < stages.size(); ++s) x = stages[s]->forward_only(x, &microbatch.labels);
        expected.push_back(stages.back()->score(x, &microbatch.labels));
      }
      comm::run_ranks(c.ranks, [&](comm::World& world) {
        auto own = toy::stages_of(world.rank(), c.ranks, c.chunks);
        Pipeline pipeline(toy::pointers(own), world.all());
        const auto scores = pipeline.score(microbatches);
        ASSERT_EQ(scores.size(), world.rank() + 1 < c.ranks ? 0 : expected.size());
        for (size_t i = 0; i < scores.size(); ++i) {
          EXPECT_TRUE(at::equal(scores[i].log_probability, expected[i].log_probability)) << i;
        }
      });
    }
  }
}

TEST(Pipeline, TheTimelineIsTheScheduleAndSumsBeginInTheLastBackwardOfEachStage) {
  const Case c{"interleaved_1f1b", 2, 2, 4};
  const Schedule schedule = make_schedule(c.schedule, c.ranks, c.chunks, c.microbatches);
  comm::run_ranks(c.ranks, [&](comm::World& world) {
    auto stages = toy::stages_of(world.rank(), c.ranks, c.chunks);
    Pipeline pipeline(toy::pointers(stages), world.all());
    pipeline.set_schedule(schedule);
    char never_read = 0;
    auto* const sums = reinterpret_cast<GradientReducer*>(&never_read);
    for (int step = 0; step < 2; ++step) {
      pipeline.forward_backward(toy::microbatches(c.microbatches), sums);
      const auto& actions = schedule.actions[static_cast<size_t>(world.rank())];
      ASSERT_EQ(pipeline.timeline().size(), actions.size());
      double end_s = 0;
      for (size_t i = 0; i < actions.size(); ++i) {
        const TimedAction& timed = pipeline.timeline()[i];
        EXPECT_EQ(timed.action, actions[i]);
        EXPECT_LE(end_s, timed.begin_s - timed.waited_s);
        EXPECT_LE(timed.begin_s, timed.end_s);
        end_s = timed.end_s;
      }
    }
    for (const auto& stage : stages)
      EXPECT_EQ(stage->sums_began_at, (std::vector{c.microbatches - 1, c.microbatches - 1}));
  });
}

TEST(Pipeline, AStageThatThrowsCostsTheOthersTheTimeoutAndNoHang) {
  std::set<std::string> told;
  std::mutex mutex;
  comm::run_ranks(
      3,
      [&](comm::World& world) {
        auto stages = toy::stages_of(world.rank(), 3, 1);
        if (world.rank() == 1) stages[0]->breaks_at = 1;
        Pipeline pipeline(toy::pointers(stages), world.all());
        pipeline.set_schedule(make_schedule("1f1b", 3, 1, 4));
        try {
          pipeline.forward_backward(toy::microbatches(4));
          ADD_FAILURE() << "rank " << world.rank() << " came to the end";
        } catch (const CommError& error) {
          std::lock_guard lock(mutex);
          told.insert("timeout");
          EXPECT_NE(std::string(error.what()).find("missing: rank"), std::string::npos) << error.what();
        } catch (const DataError& error) {
          std::lock_guard lock(mutex);
          told.insert(error.what());
        }
      },
      impatient(1));
  EXPECT_EQ(told, (std::set<std::string>{"timeout", "broken"}));
}

TEST(Pipeline, AnActivationThatIsNotWhatTheStageDeclaredIsABug) {
  comm::run_ranks(1, [&](comm::World& world) {
    auto stages = toy::stages_of(0, 1, 2);
    stages[0]->out_dtype = at::kBFloat16;
    Pipeline pipeline(toy::pointers(stages), world.all());
    EXPECT_THROW(pipeline.score(toy::microbatches(1)), Error);
  });
}

TEST(Pipeline, AScheduleThatNeverEndsIsRefusedBeforeItRuns) {
  comm::run_ranks(1, [&](comm::World& world) {
    auto stages = toy::stages_of(0, 1, 1);
    Pipeline pipeline(toy::pointers(stages), world.all());
    EXPECT_THROW(pipeline.set_schedule({"mine", 1, 1, 1, {{{Work::kBackward, 0, 0}, {Work::kForward, 0, 0}}}}), Error);
  });
}

}  // namespace
}  // namespace athanor::pipeline_test

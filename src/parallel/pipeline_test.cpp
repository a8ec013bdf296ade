#include "parallel/pipeline.h"

#include <gtest/gtest.h>

#include <mutex>
#include <set>

#include "base/error.h"
#include "comm/thread_wire.h"
#include "parallel/pipeline_mail.h"
#include "parallel/toy_stage.h"

namespace athanor {
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

/// What the ranks found, put together.
struct Outcome {
  std::vector<Tensor> gradients;  ///< by stage
  LossParts parts;
  int64_t bytes_sent = 0;
};

// A test that hangs ends, and says where.
comm::WorldOptions impatient(int timeout_s = 60) {
  comm::WorldOptions options;
  options.timeout = std::chrono::seconds(timeout_s);
  return options;
}

// One microbatch after the other through all stages.
Outcome one_process(const std::vector<Microbatch>& microbatches, int num_stages) {
  auto stages = toy::stages(num_stages);
  Outcome outcome;
  for (int m = 0; m < static_cast<int>(microbatches.size()); ++m) {
    const Microbatch& microbatch = microbatches[static_cast<size_t>(m)];
    Tensor x = microbatch.tokens;
    for (auto& stage : stages) x = stage->forward(m, x, &microbatch.labels);
    Tensor dy;
    for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage) dy = (*stage)->backward(m, dy);
    for (auto& stage : stages) outcome.parts += stage->take_parts(m);
  }
  for (auto& stage : stages) outcome.gradients.push_back(stage->gradient);
  return outcome;
}

Outcome pipelined(const Case& c, const std::vector<Microbatch>& microbatches, const comm::ThreadNetwork& network = {}) {
  Outcome outcome;
  outcome.gradients.resize(static_cast<size_t>(c.ranks * c.chunks));
  std::mutex mutex;
  comm::run_ranks(
      c.ranks,
      [&](comm::World& world) {
        auto stages = toy::stages_of(world.rank(), c.ranks, c.chunks);
        Pipeline pipeline(toy::pointers(stages), world.all());
        pipeline.set_schedule(make_schedule(c.schedule, c.ranks, c.chunks, c.microbatches));
        const LossParts parts = pipeline.forward_backward(microbatches);
        std::lock_guard lock(mutex);
        outcome.parts += parts;
        for (auto& stage : stages) outcome.gradients[static_cast<size_t>(stage->number)] = stage->gradient;
        const auto sent = world.all().traffic().bytes_of.find("send");
        if (sent != world.all().traffic().bytes_of.end()) outcome.bytes_sent += sent->second;
      },
      impatient(), network);
  return outcome;
}

void expect_equal(const Outcome& got, const Outcome& expected) {
  EXPECT_EQ(got.parts.loss_sum, expected.parts.loss_sum);
  EXPECT_EQ(got.parts.num_targets, expected.parts.num_targets);
  EXPECT_EQ(got.parts.aux_sum, expected.parts.aux_sum);
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
      microbatches.back() = toy::microbatch(77, 3, 2);  // of another size
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

TEST(Pipeline, TheTimelineIsTheScheduleAndHooksAreCalledAlongIt) {
  const Case c{"interleaved_1f1b", 2, 2, 4};
  const Schedule schedule = make_schedule(c.schedule, c.ranks, c.chunks, c.microbatches);
  comm::run_ranks(c.ranks, [&](comm::World& world) {
    auto stages = toy::stages_of(world.rank(), c.ranks, c.chunks);
    Pipeline pipeline(toy::pointers(stages), world.all());
    pipeline.set_schedule(schedule);
    std::vector<Action> after;
    std::vector<std::pair<int, size_t>> last;  // chunk, and how many actions were over
    PipelineHooks hooks;
    hooks.after = [&](const Action& a) { after.push_back(a); };
    hooks.before_last_backward = [&](int chunk) { last.emplace_back(chunk, after.size()); };
    for (int step = 0; step < 2; ++step) {
      after.clear();
      last.clear();
      pipeline.forward_backward(toy::microbatches(c.microbatches), hooks);
      const auto& actions = schedule.actions[static_cast<size_t>(world.rank())];
      EXPECT_EQ(after, actions);
      ASSERT_EQ(pipeline.timeline().size(), actions.size());
      double end_s = 0;
      for (size_t i = 0; i < actions.size(); ++i) {
        const TimedAction& timed = pipeline.timeline()[i];
        EXPECT_EQ(timed.action, actions[i]);
        EXPECT_LE(end_s, timed.begin_s - timed.waited_s);
        EXPECT_LE(timed.begin_s, timed.end_s);
        end_s = timed.end_s;
      }
      ASSERT_EQ(last.size(), 2u);
      for (const auto& [chunk, num_over] : last) {
        EXPECT_EQ(actions[num_over], (Action{Work::kBackward, c.microbatches - 1, chunk}));
      }
    }
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

TEST(PipelineMail, MessagesBetweenTwoRanksComeInTheirSendersOrder) {
  const Work F = Work::kForward, B = Work::kBackward;
  const Schedule two = make_schedule("1f1b", 2, 1, 3);
  EXPECT_EQ(messages_between(two, 0, 1), (std::vector<Message>{{F, 0, 1}, {F, 1, 1}, {F, 2, 1}}));
  EXPECT_EQ(messages_between(two, 1, 0), (std::vector<Message>{{B, 0, 0}, {B, 1, 0}, {B, 2, 0}}));
  // Around the corner from the last rank's first chunk to the first rank's second, among gradients.
  const Schedule interleaved = make_schedule("interleaved_1f1b", 2, 2, 2);
  EXPECT_EQ(messages_between(interleaved, 1, 0),
            (std::vector<Message>{{F, 0, 2}, {F, 1, 2}, {B, 0, 2}, {B, 1, 2}, {B, 0, 0}, {B, 1, 0}}));
  EXPECT_EQ(messages_between(interleaved, 0, 1),
            (std::vector<Message>{{F, 0, 1}, {F, 1, 1}, {F, 0, 3}, {F, 1, 3}, {B, 0, 1}, {B, 1, 1}}));
  EXPECT_TRUE(messages_between(make_schedule("1f1b", 3, 1, 3), 0, 2).empty());
}

TEST(PipelineMail, RoomIsGivenBeforeItIsAskedForAndToNoMoreThanThat) {
  const Schedule schedule = make_schedule("gpipe", 2, 1, 8);
  comm::run_ranks(2, [&](comm::World& world) {
    int num_rooms = 0;
    PipelineMail mail(schedule, world.all(), [&](const Message&) {
      ++num_rooms;
      return at::empty({4});
    });
    EXPECT_EQ(num_rooms, PipelineMail::kAhead);
    for (int m = 0; m < 8; ++m) {
      if (world.rank() == 0) {
        mail.put({Work::kForward, m, 1}, at::full({4}, m, at::kFloat));
      } else {
        EXPECT_EQ(mail.take({Work::kForward, m, 1})[0].item<int>(), m);
        EXPECT_EQ(num_rooms, std::min(8, m + 1 + PipelineMail::kAhead));
      }
    }
    for (int m = 0; m < 8; ++m) {
      if (world.rank() == 1) mail.put({Work::kBackward, m, 0}, at::full({4}, 10 + m, at::kFloat));
    }
    if (world.rank() == 0) {
      // All at once and the last one first: those before it get room too.
      EXPECT_EQ(mail.take({Work::kBackward, 7, 0})[0].item<int>(), 17);
      EXPECT_EQ(mail.take({Work::kBackward, 0, 0})[0].item<int>(), 10);
      for (int m = 1; m < 7; ++m) mail.take({Work::kBackward, m, 0});
    }
    mail.finish();
  });
}

}  // namespace
}  // namespace athanor

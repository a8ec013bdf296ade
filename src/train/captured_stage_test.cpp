// Steps that are launched as recorded graphs, on the device that the host plays.

#include <tuple>
#include <vector>

#include "train/captured_stage.h"

#include <gtest/gtest.h>

#include "base/testing/folder_test.h"
#include "base/testing/test_all.h"
#include "model/initialize.h"
#include "ops/transfer.h"
#include "train/microbatch.h"
#include "train/testing/batches.h"
#include "train/testing/device_case.h"
#include "train/train_step.h"

namespace athanor::captured_stage_test {
namespace {

using guarded::Order;

struct Trace {
  std::vector<double> numbers;        // losses and norms of all steps
  std::vector<Tensor> router_counts;  // those of the last step
  Tensor weights;                     // at the end
  int64_t launches = 0;               // those of the last step
  bool operator==(const Trace& other) const {
    bool same = numbers == other.numbers && same_bits(weights, other.weights);
    for (size_t i = 0; i < router_counts.size(); ++i)
      same = same && same_bits(router_counts[i], other.router_counts[i]);
    return same;
  }
};

// The batches of a run whose documents differ from step to step.
Batch batch_of(const RunConfig& config, int64_t step) {
  Batch batch = fixed_batch(config);
  for (size_t i = 0; i < batch.tokens.size(); ++i)
    batch.tokens[i] = static_cast<uint32_t>((batch.tokens[i] * 7 + static_cast<uint32_t>(step * 13) + i) % 128);
  return batch;
}

Trace train(RunConfig config, bool graphs, int64_t steps,
            const std::function<void(TrainState&, int64_t)>& before = {}) {
  config.train.cuda_graphs = graphs;
  TrainState state(config, {"", 5}, {.device = guarded::device_of_tests()});
  initialize_parameters(config.model, 7, state.model.parameters);
  Trace trace;
  for (int64_t step = 0; step < steps; ++step) {
    if (before) before(state, step);
    const int64_t launches = guarded::queues().counts().launches;
    const StepReport report = train_step(state, batch_of(config, step));
    trace.launches = guarded::queues().counts().launches - launches;
    for (const double each : {report.parts.loss_sum, report.parts.aux_sum, report.parts.z_sum, report.grad_norm})
      trace.numbers.push_back(each);
    const RouterCounts& routers = report.parts.routers;
    trace.router_counts.clear();
    if (routers.defined()) trace.router_counts = {routers.chosen, routers.taken, routers.entropy_sum};
  }
  trace.weights = ops::fetch(state.model.parameters.compute()).clone();
  return trace;
}

class CapturedStep : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  void TearDown() override { guarded::queues().set_order({}); }
  RunConfig config() const {
    RunConfig c = small_device_run(std::get<0>(GetParam()), std::get<1>(GetParam()));
    c.train.global_batch_size = 8;  // four microbatches
    return c;
  }
};
const auto kFamiliesAndTypes =
    ::testing::Combine(::testing::Values("olmo", "qwen3_moe"), ::testing::Values("float32", "bfloat16"));
INSTANTIATE_TEST_SUITE_P(, CapturedStep, kFamiliesAndTypes,
                         [](const auto& each) { return std::get<0>(each.param) + "_" + std::get<1>(each.param); });
INSTANTIATE_TEST_SUITE_P(TestAll, CapturedStep, kFamiliesAndTypes,
                         [](const auto& each) { return std::get<0>(each.param) + "_" + std::get<1>(each.param); });

TEST_P(CapturedStep, HasTheBitsOfOneThatIsNotInEveryOrder) {
  const bool all = test::is_of_test_all() || !guarded::device_of_tests().is_privateuseone();
  for (const bool documents : {false, true}) {
    if (!all && documents != (std::get<1>(GetParam()) == "bfloat16")) continue;  // one of them with each type
    RunConfig c = config();
    if (documents) c.data.attention_scope = "document";
    if (c.model.num_experts > 0) c.moe.aux_scope = "global";  // its share changes from step to step
    if (c.model.num_experts > 0) c.moe.bias_update_rate = 0.01;
    const Trace expected = train(c, false, 4);
    std::vector<Order> orders = {{Order::Kind::kLatest}};
    if (documents) orders = {{Order::Kind::kDrawn, 3}};
    if (all) orders = {{}, {Order::Kind::kLatest}, {Order::Kind::kDrawn, 3}};
    for (const Order& order : orders) {
      guarded::queues().set_order(order);
      const Trace found = train(c, true, 4);
      EXPECT_TRUE(found == expected) << (documents ? "documents" : "instances");
      if (guarded::device_of_tests().is_privateuseone()) {
        EXPECT_LT(3 * found.launches, expected.launches) << found.launches << " and " << expected.launches;
      }
    }
  }
}

TEST(CapturedStage, BatchesOfAnotherSizeHaveTheirOwnGraphs) {
  RunConfig c = small_device_run("olmoe", "bfloat16");
  c.train.global_batch_size = 6;  // with microbatches of 2
  const auto halve = [](TrainState& state, int64_t step) {
    if (step != 3) return;
    TrainingStage phase = training_stages(state.run_config).front();
    phase.config.train.micro_batch_size = 1;
    state.enter(phase);
  };
  EXPECT_TRUE(train(c, true, 6, halve) == train(c, false, 6, halve));
}

TEST(CapturedStage, AnObservedStepRunsAsItIsAndTheOthersAsGraphs) {
  struct Sum : Observer {
    int64_t seen = 0;
    void observe(const Observation&) override { ++seen; }
  };
  const RunConfig c = small_device_run("olmo", "bfloat16");
  const auto sum = std::make_shared<Sum>();
  const auto observe = [&](TrainState& state, int64_t step) {
    if (step == 3) state.observers.add(sum);
    if (step == 4) state.observers.remove(sum);
  };
  const Trace expected = train(c, false, 6), found = train(c, true, 6, observe);
  EXPECT_TRUE(found == expected);
  EXPECT_GT(sum->seen, 0);
  EXPECT_LT(3 * found.launches, expected.launches);
}

// What cannot be recorded: a wait, a copy to the host. The step is then run as it is.
TEST(CapturedStage, AStageThatCannotBeRecordedRunsAsItIs) {
  struct Waiting : Stage {
    explicit Waiting(Stage& other) : stage(other) {}
    void expect(int64_t batch, int64_t seq_len) override { stage.expect(batch, seq_len); }
    Tensor forward(int m, Tensor x, const Labels* labels) override {
      ops::fetch(x);
      return stage.forward(m, std::move(x), labels);
    }
    Tensor backward(int m, Tensor dy, GradientReducer* sums) override { return stage.backward(m, std::move(dy), sums); }
    LossParts take_parts(int m) override { return stage.take_parts(m); }
    Tensor forward_only(Tensor x, const Labels* labels) override { return stage.forward_only(std::move(x), labels); }
    TokenScores score(Tensor x, const Labels* labels) override { return stage.score(std::move(x), labels); }
    Stage& stage;
  };
  const RunConfig c = small_device_run("olmo", "bfloat16");
  const Trace expected = train(c, false, 4);
  std::unique_ptr<Waiting> waiting;
  TrainStateOptions options{.device = guarded::device_of_tests()};
  options.wrap_stage = [&](Stage& stage, const StageLayers&, const Mesh&) -> std::unique_ptr<Stage> {
    waiting = std::make_unique<Waiting>(stage);
    return std::make_unique<CapturedStage>(*waiting, guarded::device_of_tests(), nullptr);
  };
  TrainState state(c, {"", 5}, std::move(options));
  initialize_parameters(c.model, 7, state.model.parameters);
  for (int64_t step = 0; step < 4; ++step) {
    const StepReport report = train_step(state, batch_of(c, step));
    EXPECT_EQ(report.parts.loss_sum, expected.numbers[static_cast<size_t>(4 * step)]);
  }
}

// What the recording has taken is free again, and the warning is one line.
TEST(CapturedStage, WhatAFailedRecordingTookIsFreeAgain) {
  const RunConfig c = small_device_run("olmoe", "bfloat16");
  const auto left_after = [&](int64_t failing) {
    RunConfig config = c;
    config.train.cuda_graphs = failing >= 0;
    TrainState state(config, {"", 5}, {.device = guarded::device_of_tests()});
    initialize_parameters(c.model, 7, state.model.parameters);
    for (int64_t step = 0; step < 4; ++step) {
      if (step == 1 && failing >= 0) guarded::memory().fail_at(failing);  // its first microbatch is recorded
      train_step(state, batch_of(c, step));
      guarded::memory().fail_at(-1);
    }
    return guarded::memory().allocated();
  };
  const size_t plain = left_after(-1);
  for (const int64_t failing : {20, 60, 110, 140}) EXPECT_EQ(left_after(failing), plain) << failing;
}

// Counts, for each number of tokens, the microbatches that ran as they were and those that were recorded.
struct CountingStage : Stage {
  void expect(int64_t, int64_t) override {}
  Tensor forward(int microbatch, Tensor x, const Labels*) override {
    ++(microbatch < 0 ? recorded : plain)[x.size(1)];
    parts.sums = at::zeros({LossParts::kNumSums}, x.options().dtype(at::kDouble));
    return {};
  }
  Tensor backward(int, Tensor, GradientReducer*) override { return {}; }
  LossParts take_parts(int) override { return parts; }
  Tensor forward_only(Tensor, const Labels*) override { return {}; }
  TokenScores score(Tensor, const Labels*) override { return {}; }
  LossParts parts;
  std::map<int64_t, int> plain, recorded;
};

// Gives a stage a microbatch of one sequence.
void run_microbatch(Stage& stage, int64_t num_tokens) {
  std::vector<Microbatch> one(1);
  one[0].tokens = at::zeros({1, num_tokens}, at::kLong);
  one[0].labels.targets = at::zeros({1, num_tokens}, at::kLong);
  send_to(guarded::device_of_tests(), one);
  stage.forward(0, one[0].tokens, &one[0].labels);
  stage.backward(0, {}, nullptr);
  stage.take_parts(0);
}

TEST(CapturedStage, OfFiveShapesInTurnFourAreLaunchedAndOneWarningCountsThem) {
  CountingStage counting;
  CapturedStage stage(counting, guarded::device_of_tests(), nullptr);
  testing::internal::CaptureStderr();
  for (int round = 0; round < 6; ++round)
    for (int64_t tokens = 1; tokens <= 5; ++tokens) run_microbatch(stage, tokens);
  const std::string said = testing::internal::GetCapturedStderr();
  for (int64_t tokens = 1; tokens <= 4; ++tokens) {
    EXPECT_EQ(counting.plain[tokens], 2) << tokens;
    EXPECT_EQ(counting.recorded[tokens], 1) << tokens;
  }
  EXPECT_EQ(counting.plain[5], 6);
  EXPECT_EQ(counting.recorded[5], 0);
  const std::string warning = "the last 15 microbatches had 5 shapes, and graphs are recorded for 4 of them";
  EXPECT_SAYS(said, warning);
  EXPECT_EQ(said.find(" shapes, "), said.rfind(" shapes, ")) << said;
}

TEST(CapturedStage, ShapesOfAnEarlierPhaseMakeRoomAndTheirMemoryIsFree) {
  CountingStage counting;
  CapturedStage stage(counting, guarded::device_of_tests(), nullptr);
  for (int round = 0; round < 3; ++round)
    for (int64_t tokens = 1; tokens <= 4; ++tokens) run_microbatch(stage, tokens);
  const int64_t held = ops::Graph::held_bytes_of_all();
  EXPECT_GT(held, 0);
  for (int i = 0; i < 300; ++i) run_microbatch(stage, 9);
  EXPECT_EQ(counting.recorded[9], 1);
  EXPECT_LT(counting.plain[9], 260);
  EXPECT_LT(ops::Graph::held_bytes_of_all(), held / 2) << "of one graph, not of four";
}

TEST(Graph, HoldsWhatItsBodyAllocatesUntilItIsDropped) {
  constexpr int64_t kBytes = 1 << 20;
  const int64_t before = ops::Graph::held_bytes_of_all();
  const Tensor x = ops::send(at::ones({kBytes}, at::kByte), guarded::device_of_tests());
  {
    const ops::Graph graph(guarded::device_of_tests(), [&] { const Tensor y = x + 1, z = x + y; });
    EXPECT_GE(graph.held_bytes(), 2 * kBytes);
    EXPECT_LT(graph.held_bytes(), 4 * kBytes);
    EXPECT_EQ(ops::Graph::held_bytes_of_all(), before + graph.held_bytes());
  }
  EXPECT_EQ(ops::Graph::held_bytes_of_all(), before);
}

TEST(Graph, ARecordingRefusesWaitsAndCopies) {
  const Tensor x = ops::send(at::ones({4}), guarded::device_of_tests());
  const auto records = [&](const std::function<void()>& body) {
    const ops::Graph graph(guarded::device_of_tests(), body);
  };
  EXPECT_THROW(records([&] { ops::fetch(x); }), Error);
  EXPECT_THROW(records([&] { ops::send(at::ones({4}), guarded::device_of_tests()); }), Error);
  EXPECT_THROW(records([&] { ops::wait_for(guarded::device_of_tests()); }), Error);
  EXPECT_ANY_THROW(records([&] { (x + 1).item<float>(); }));
  EXPECT_NO_THROW(records([&] { x + 1; }));
  EXPECT_EQ(ops::fetch(x)[0].item<float>(), 1) << "the device is usable after a recording that failed";
}

TEST(Graph, ALaunchReadsWhatItsInputsContainThenAndKeepsItsMemory) {
  guarded::queues().set_order({Order::Kind::kLatest});
  const Tensor x = ops::send(at::ones({1024}), guarded::device_of_tests());
  Tensor y;
  ops::Graph graph(guarded::device_of_tests(), [&] { y = (x * 2) + 1; });
  for (int i = 2; i < 5; ++i) {
    x.fill_(i);
    graph.launch();
    const Tensor other = at::full({1024}, 77.0f, x.options());  // takes no memory of the graph
    EXPECT_EQ(ops::fetch(y)[7].item<float>(), 2.0f * static_cast<float>(i) + 1);
  }
  guarded::queues().set_order({});
}

}  // namespace
}  // namespace athanor::captured_stage_test

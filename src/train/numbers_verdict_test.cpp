// Tests that a node whose numbers are wrong, and a model or data that give values that are not finite, are
// distinguished in every layout. Ranks are threads, each on a separate node or two on a node.

#include "train/numbers_verdict.h"

#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <random>

#include "base/exit_codes.h"
#include "base/testing/folder_test.h"
#include "comm/thread_ranks.h"
#include "model/initialize.h"
#include "train/microbatch.h"
#include "train/testing/fixed_batch.h"
#include "train/testing/layout_cases.h"
#include "train/train_step.h"

namespace athanor::numbers_verdict_test {
namespace {

using Fault = NumbersVerdict::Fault;

// Puts NaN into what a rank's model makes at one of its moments: in each computation of the step, or only in the first.
class BadNode : public Observer {
 public:
  BadNode(int64_t at, bool always) : at_(at), always_(always) {}
  void begin_gradients() override {
    num_moments_ = seen_;
    seen_ = 0;
    ++times_;
  }
  void observe(const Observation& o) override {
    if (o.phase == Observation::Phase::kReduced || o.phase == Observation::Phase::kAddedOverReplicas) return;
    if (seen_++ == at_ && (always_ || times_ == 1)) o.tensor.view({-1}).select(0, o.tensor.numel() / 2).fill_(NAN);
  }
  int64_t num_moments() const { return std::max(seen_, num_moments_); }

 private:
  int64_t at_, seen_ = 0, num_moments_ = 0;
  bool always_;
  int times_ = 0;
};

struct Planned {
  int bad_rank = -1;  // computes NaN at `moment`
  int64_t moment = 0;
  bool always = true;
  int bad_sequence = -1;  // has a token whose embedding is NaN
  int per_node = 1;
};

struct Outcome {
  NumbersVerdict verdict;
  int64_t num_moments = 0;  // those of the bad rank
};

constexpr int kRareToken = 63;  // in no fixed batch

// Leaves the sequences that a data rank reads in training.
Batch held_by(const Batch& whole, const Layout& layout, int data_rank, int64_t micro_batch_size) {
  Batch batch{whole.num_sequences, whole.seq_len, {}, whole.next, sequences_of(layout, data_rank, micro_batch_size)};
  for (const int64_t sequence : batch.held) {
    const int32_t* tokens = whole.sequence(sequence);
    batch.tokens.insert(batch.tokens.end(), tokens, tokens + whole.seq_len);
  }
  return batch;
}

Outcome run(const LayoutCase& layout, const Planned& planned) {
  RunConfig config = config_with(layout);
  config.topology.ranks_per_node = planned.per_node;
  Outcome outcome;
  std::map<int, std::string> reasons;
  std::mutex mutex;
  comm::WorldOptions options;
  options.ranks_per_node = planned.per_node;
  comm::run_ranks(
      layout.ranks(),
      [&](comm::World& world) {
        Mesh mesh(Layout(config, layout.ranks()), world);
        TrainState state(config, {}, mesh);
        ParameterStore& parameters = state.model.parameters;
        initialize_parameters(config.model, 1, parameters);
        Batch whole = fixed_batch(config);
        if (planned.bad_sequence >= 0) {
          whole.tokens[static_cast<size_t>(planned.bad_sequence * whole.seq_len + 3)] = kRareToken;
          const bool is_first_stage = mesh.layout().coordinate(world.rank(), Axis::kPipeline) == 0;
          const bool has_last_row = mesh.layout().coordinate(world.rank(), Axis::kTensor) == layout.tensor - 1;
          if (is_first_stage && has_last_row)
            parameters.weight("model.embed_tokens.weight").value.select(0, -1).fill_(NAN);
        }
        const Batch batch = held_by(whole, mesh.layout(), mesh.data_rank(), config.train.micro_batch_size);
        const auto bad =
            std::make_shared<BadNode>(world.rank() == planned.bad_rank ? planned.moment : -1, planned.always);
        const auto watch = std::make_shared<FiniteWatch>(mesh);
        state.observers.add(bad);
        state.observers.add(watch);
        const Tensor weights = parameters.compute().clone();
        compute_gradients(state, batch);
        const NumbersVerdict verdict = find_fault(state, {batch, 1, watch});
        EXPECT_TRUE(at::equal(weights.nan_to_num(), parameters.compute().nan_to_num()));
        const std::lock_guard lock(mutex);
        reasons[world.rank()] = verdict.reason;
        if (world.rank() == 0) outcome.verdict = verdict;
        if (world.rank() == planned.bad_rank) outcome.num_moments = bad->num_moments();
      },
      options);
  for (const auto& [rank, reason] : reasons) EXPECT_EQ(reason, reasons.at(0)) << rank;
  return outcome;
}

TEST(NumbersVerdict, ANodeThatComputesNaNIsAtFaultWhetherItDoesSoOnceOrAlways) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(fmt::format("drawn with seed {}", seed));
  std::mt19937 draw(seed);
  for (const LayoutCase& layout : kLayoutCases) {
    if (layout.ranks() == 1) continue;
    for (int time = 0; time < 4; ++time) {
      Planned planned{.bad_rank = static_cast<int>(draw() % static_cast<unsigned>(layout.ranks())),
                      .moment = -1,
                      .always = time % 2 == 0,
                      .per_node = time / 2 == 0 || layout.ranks() < 4 ? 1 : 2};
      planned.moment = draw() % static_cast<unsigned>(run(layout, planned).num_moments);
      const NumbersVerdict verdict = run(layout, planned).verdict;
      const std::string what = fmt::format("{}: rank {}, moment {}, {}: {}", layout.name, planned.bad_rank,
                                           planned.moment, planned.always ? "always" : "once", verdict.reason);
      EXPECT_EQ(verdict.fault, Fault::kNode) << what;
      EXPECT_EQ(verdict.exit_code(), exit_code::kNumbersOfANode) << what;
      ASSERT_TRUE(verdict.origin) << what;
      EXPECT_EQ(verdict.origin->rank, planned.bad_rank) << what;
    }
  }
}

TEST(NumbersVerdict, DataThatGiveNaNAreAtFaultOnEveryNodeAndTheirPlaceIsNamed) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(fmt::format("drawn with seed {}", seed));
  std::mt19937 draw(seed);
  for (const LayoutCase& layout : kLayoutCases) {
    if (layout.ranks() == 1) continue;
    for (int time = 0; time < 3; ++time) {
      const auto sequence = static_cast<int>(draw() % static_cast<unsigned>(3 * layout.data));
      const NumbersVerdict verdict = run(layout, {.bad_sequence = sequence}).verdict;
      const std::string what = fmt::format("{}: sequence {}: {}", layout.name, sequence, verdict.reason);
      EXPECT_EQ(verdict.fault, Fault::kModel) << what;
      EXPECT_EQ(verdict.exit_code(), exit_code::kNumbersEverywhere) << what;
      EXPECT_SAYS(verdict.reason, fmt::format("sequence {} of the step's {}", sequence, 3 * layout.data));
    }
  }
}

TEST(NumbersVerdict, OnOneNodeNothingIsProven) {
  const Outcome outcome = run({.name = "", .data = 2}, {.bad_rank = 1, .moment = 3, .per_node = 2});
  EXPECT_EQ(outcome.verdict.fault, Fault::kUnproven);
  EXPECT_EQ(outcome.verdict.exit_code(), exit_code::kNumbersEverywhere);
  EXPECT_SAYS(outcome.verdict.reason, "all ranks are on one node");
}

}  // namespace
}  // namespace athanor::numbers_verdict_test

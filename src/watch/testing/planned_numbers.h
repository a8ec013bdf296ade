#pragma once
// For tests of verdicts: a step of a layout in which a rank's numbers, or those of a sequence, are not finite. Ranks
// are threads, on CPUs or each on a device that the host plays.

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <mutex>

#include "comm/testing/guarded_groups.h"
#include "model/initialize.h"
#include "ops/transfer.h"
#include "train/microbatch.h"
#include "train/testing/batches.h"
#include "train/testing/layout_cases.h"
#include "train/train_step.h"
#include "watch/numbers_verdict.h"

namespace athanor::inline watch {

/// Puts NaN into what a rank's model makes at one of its moments: in each computation of the step, or only in the
/// first.
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

/// Puts NaN into what a place of the model makes of a sequence, wherever that is computed.
class BadSequence : public Observer {
 public:
  BadSequence(int64_t sequence, std::string place) : sequence_(sequence), place_(std::move(place)) {}
  void set_active(bool active) { active_ = active; }
  void observe(const Observation& o) override {
    if (active_ && o.phase == Observation::Phase::kForward && o.first_sequence == sequence_ && o.place == place_)
      o.tensor.view({-1}).select(0, o.tensor.numel() / 2).fill_(NAN);
  }

 private:
  int64_t sequence_;
  std::string place_;
  bool active_ = true;
};

struct PlannedNumbers {
  int bad_rank = -1;  ///< computes NaN at `moment`
  int64_t moment = 0;
  bool always = true;
  int bad_sequence = -1;       ///< has a token whose embedding is NaN
  std::string bad_place = {};  ///< or, if this is set, is NaN there
  int per_node = 1;
  std::function<void(int rank)> before_verdict = {};  ///< called on each rank
  bool on_devices = false;
  guarded::Order order = {};
};

struct PlannedOutcome {
  NumbersVerdict verdict;
  int64_t num_moments = 0;        ///< those of the bad rank
  ops::TransferCounts transfers;  ///< by all ranks, from the end of the step to the verdict
  guarded::CopyCounts copies;     ///< all copies of devices in that time, counted by them
};

inline constexpr int kRareToken = 63;  ///< in no fixed batch

/// Leaves the sequences that a data rank reads in training.
inline Batch held_by(const Batch& whole, const Layout& layout, int data_rank, int64_t micro_batch_size) {
  Batch batch{whole.num_sequences, whole.seq_len, {}, whole.next, sequences_of(layout, data_rank, micro_batch_size)};
  for (const int64_t sequence : batch.held) {
    const int32_t* tokens = whole.sequence(sequence);
    batch.tokens.insert(batch.tokens.end(), tokens, tokens + whole.seq_len);
  }
  return batch;
}

/// Gives a sequence the rare token, and the token an embedding that is not finite.
inline void spoil_sequence(TrainState& state, Batch& whole, int64_t sequence) {
  whole.tokens[static_cast<size_t>(sequence * whole.seq_len + 3)] = kRareToken;
  const Layout& layout = state.model.mesh.layout();
  const int rank = state.model.mesh.rank();
  const bool is_first_stage = layout.coordinate(rank, Axis::kPipeline) == 0;
  const bool has_last_row = layout.coordinate(rank, Axis::kTensor) == layout.tensor() - 1;
  if (is_first_stage && has_last_row)
    state.model.parameters.weight("model.embed_tokens.weight").value.select(0, -1).fill_(NAN);
}

/// Returns the verdict on a step in which what was planned happens, and tests that all ranks come to the same.
inline PlannedOutcome judge_planned(const LayoutCase& layout, const PlannedNumbers& planned) {
  RunConfig config = config_with(layout);
  config.topology.ranks_per_node = planned.per_node;
  PlannedOutcome outcome;
  std::map<int, std::string> reasons;
  std::mutex mutex;
  comm::WorldOptions options;
  options.ranks_per_node = planned.per_node;
  const auto rank = [&](comm::World& world, at::Device device) {
    Mesh mesh(Layout(config, layout.ranks()), world);
    if (!device.is_cpu()) mesh.use(device);
    TrainState state(config, {}, mesh, {.device = device});
    ParameterStore& parameters = state.model.parameters;
    initialize_parameters(config.model, 1, parameters);
    Batch whole = fixed_batch(config);
    if (planned.bad_sequence >= 0 && planned.bad_place.empty()) spoil_sequence(state, whole, planned.bad_sequence);
    const Batch batch = held_by(whole, mesh.layout(), mesh.data_rank(), config.train.micro_batch_size);
    const auto bad = std::make_shared<BadNode>(world.rank() == planned.bad_rank ? planned.moment : -1, planned.always);
    const auto watch = std::make_shared<FiniteWatch>(mesh, state.model.device());
    state.observers.add(bad);
    if (!planned.bad_place.empty())
      state.observers.add(std::make_shared<BadSequence>(planned.bad_sequence, planned.bad_place));
    state.observers.add(watch);
    const Tensor weights = ops::fetch(parameters.compute()).clone();
    const StepReport report = train_step(state, batch);
    world.all().barrier();
    const ops::TransferCounts before = ops::transfer_counts();
    const guarded::CopyCounts copies = guarded::copy_counts();
    if (planned.before_verdict) planned.before_verdict(world.rank());
    world.all().barrier();
    const NumbersVerdict verdict = find_fault(state, {batch, 1, watch});
    world.all().barrier();
    PlannedOutcome own{verdict, bad->num_moments(), ops::transfer_counts() - before, guarded::copy_counts()};
    own.copies.to_device -= copies.to_device, own.copies.to_host -= copies.to_host;
    world.all().barrier();
    if (report.verdict == Verdict::kRefuse) {
      EXPECT_TRUE(at::equal(weights.nan_to_num(), ops::fetch(parameters.compute()).nan_to_num()));
      EXPECT_FALSE(ops::fetch(parameters.grad()).any().item<bool>());
    }
    const std::lock_guard lock(mutex);
    reasons[world.rank()] = verdict.reason;
    if (world.rank() == std::max(0, planned.bad_rank)) outcome = own;
  };
  if (planned.on_devices) {
    comm::run_device_ranks(
        layout.ranks(),
        [&](comm::World& world, at::Device device) {
          guarded::queues().set_order(planned.order);
          rank(world, device);
          guarded::queues().synchronize_all();
          world.all().barrier();
          guarded::queues().set_order({});
        },
        options);
  } else {
    comm::run_ranks(
        layout.ranks(), [&](comm::World& world) { rank(world, at::kCPU); }, options);
  }
  for (const auto& [each, reason] : reasons) EXPECT_EQ(reason, reasons.at(0)) << each;
  return outcome;
}

}  // namespace athanor::inline watch

// Tests that the rank, and the tensor, in which the first value that is not finite came up is found in every layout,
// and no other. Ranks are threads. The values are put there at moments that are drawn anew for each layout.

#include "watch/finite_watch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <random>

#include "base/testing/folder_test.h"
#include "comm/thread_ranks.h"
#include "guarded/device.h"
#include "model/initialize.h"
#include "train/testing/batches.h"
#include "train/testing/layout_cases.h"
#include "train/testing/steps.h"
#include "train/train_step.h"

namespace athanor::finite_watch_test {
namespace {

using Phase = Observation::Phase;

// One moment of a rank: what it observes or sends, in order.
struct Moment {
  std::string place;  // "" for a collective
  Phase phase = Phase::kForward;
  int microbatch = 0;
  std::string group = {};
};

void spoil(const Tensor& x, double value) { x.view({-1}).select(0, x.numel() / 2).fill_(value); }

// Counts the moments of a rank, and puts a value into one of them, before the watch sees it.
class Spoiler : public Observer, public comm::SendWatch {
 public:
  Spoiler(comm::SendWatch* watch, const Mesh& mesh, int64_t at, double value) : watch_(watch), at_(at), value_(value) {
    for (const GroupKind kind : kSharingGroups) mesh.group(kind).show_sends(this);
  }
  void begin_gradients() override { within_ = true; }
  void end_gradients() override { within_ = false; }
  void observe(const Observation& o) override {
    if (o.phase == Phase::kReduced) within_ = false;
    if (!within_) return;
    if (moments.size() == static_cast<size_t>(at_)) spoil(o.tensor, value_);
    moments.push_back({std::string(o.place), o.phase, o.microbatch});
  }
  void about_to_send(const comm::Communicator& group, int64_t number, const Tensor& sent, bool for_maximum) override {
    if (within_ && sent.numel() > 0) {
      if (moments.size() == static_cast<size_t>(at_)) spoil(sent, for_maximum ? INFINITY : value_);
      moments.push_back({.place = "", .group = group.name()});
    }
    watch_->about_to_send(group, number, sent, for_maximum);
  }

  std::vector<Moment> moments;

 private:
  comm::SendWatch* watch_;
  int64_t at_;
  double value_;
  bool within_ = false;
};

// What the ranks find if `value` is put into moment `at` of rank `spoiled`; and the moments of that rank.
struct Found {
  std::optional<NotFiniteOrigin> origin;
  std::vector<Moment> moments;
  std::vector<std::optional<NotFiniteSeen>> seen;
};

Found run(const LayoutCase& degrees, int spoiled, int64_t at, double value) {
  RunConfig config = config_with(degrees);
  config.train.global_batch_size = degrees.data * std::max(2, degrees.pipeline);
  Found found;
  found.seen.resize(static_cast<size_t>(degrees.ranks()));
  std::mutex mutex;
  comm::run_ranks(degrees.ranks(), [&](comm::World& world) {
    Mesh mesh(Layout(config, degrees.ranks()), world);
    TrainState state(config, {}, mesh);
    initialize_parameters(config.model, 1, state.model.parameters);
    const auto watch = std::make_shared<FiniteWatch>(mesh);
    const auto spoiler = std::make_shared<Spoiler>(watch.get(), mesh, world.rank() == spoiled ? at : -1, value);
    state.observers.add(spoiler);
    state.observers.add(watch);
    compute_gradients(state, fixed_batch(config));
    const auto seen = watch->first();
    const auto origin = find_origin(seen, mesh, at::kCPU);
    const std::lock_guard lock(mutex);
    found.seen[static_cast<size_t>(world.rank())] = seen;
    if (world.rank() == spoiled) found.moments = spoiler->moments;
    if (world.rank() == 0) found.origin = origin;
  });
  return found;
}

TEST(FiniteWatch, WithoutSuchValuesNoRankHasSeenOneWhateverIsInMemoryThatWasNotWritten) {
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
  at::globalContext().setDeterministicFillUninitializedMemory(true);  // with NaN
  for (const LayoutCase& degrees : kLayoutCases) {
    const Found found = run(degrees, 0, -1, 0);
    EXPECT_FALSE(found.origin) << degrees.name;
    for (const auto& seen : found.seen) EXPECT_FALSE(seen) << degrees.name << ": " << seen->place << seen->sent_in;
    EXPECT_FALSE(found.moments.empty());
  }
  at::globalContext().setDeterministicAlgorithms(false, false);
}

// Puts a value into `times` moments of each layout: in turns into one that is observed, and one that is sent.
void expect_first_named(int times) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(fmt::format("drawn with seed {}", seed));
  std::mt19937 draw(seed);
  int num_sent = 0;
  auto turn = draw() % 2;
  for (const LayoutCase& degrees : kLayoutCases) {
    std::map<int, std::vector<Moment>> moments;  // the moments of each rank, if nothing is put there
    for (int time = 0; time < times; ++time, ++turn) {
      const int rank = static_cast<int>(draw() % static_cast<unsigned>(degrees.ranks()));
      std::vector<Moment>& all = moments[rank];
      if (all.empty()) all = run(degrees, rank, -1, 0).moments;
      // Ranks that share no layer send nothing in which a value could come up.
      const bool shares = std::ranges::any_of(all, [](const Moment& m) { return m.place.empty(); });
      const bool is_sent = shares && turn % 2 == 1;
      std::vector<int64_t> candidates;
      for (size_t i = 0; i < all.size(); ++i)
        if (all[i].place.empty() == is_sent) candidates.push_back(static_cast<int64_t>(i));
      num_sent += is_sent;
      ASSERT_FALSE(candidates.empty()) << degrees.name;
      const int64_t at = candidates[draw() % candidates.size()];
      const double value = draw() % 2 == 0 ? std::numeric_limits<double>::quiet_NaN() : -INFINITY;
      const Found found = run(degrees, rank, at, value);
      const Moment& moment = found.moments.at(static_cast<size_t>(at));
      const std::string what =
          fmt::format("{}: rank {}, moment {} of {} ({} {} {} {})", degrees.name, rank, at, all.size(), moment.place,
                      phase_name(moment.phase), moment.microbatch, moment.group);
      ASSERT_TRUE(found.origin) << what;
      EXPECT_EQ(found.origin->rank, rank) << what;
      EXPECT_EQ(found.origin->num_ranks, 1) << what;
      if (moment.place.empty()) {
        EXPECT_EQ(found.origin->seen.sent_in, "group " + moment.group) << what;
      } else {
        EXPECT_EQ(found.origin->seen.place, moment.place) << what;
        EXPECT_EQ(found.origin->seen.phase, phase_name(moment.phase)) << what;
        EXPECT_EQ(found.origin->seen.microbatch, moment.microbatch) << what;
      }
    }
  }
  EXPECT_GE(num_sent, 3 * times) << "in at least every second layout of tensor or expert ranks";
}

TEST(FiniteWatch, TheRankAndTheTensorInWhichTheFirstCameUpAreNamedInEveryLayout) { expect_first_named(1); }

TEST(TestAllFiniteWatch, TheRankAndTheTensorInWhichTheFirstCameUpAreNamedInEveryLayout) { expect_first_named(12); }

TEST(FiniteWatch, AValueThatEveryRankComputesIsSaidToHaveComeUpOnAll) {
  const RunConfig config = config_with({.name = "", .data = 2, .tensor = 2});
  comm::run_ranks(4, [&](comm::World& world) {
    Mesh mesh(Layout(config, 4), world);
    TrainState state(config, {}, mesh);
    initialize_parameters(config.model, 1, state.model.parameters);
    state.model.parameters.weight("model.layers.1.input_layernorm.weight").value.fill_(NAN);
    const auto watch = std::make_shared<FiniteWatch>(mesh);
    state.observers.add(watch);
    compute_gradients(state, fixed_batch(config));
    const auto origin = find_origin(watch->first(), mesh, at::kCPU);
    ASSERT_TRUE(origin);
    EXPECT_EQ(origin->rank, 0);
    EXPECT_EQ(origin->num_ranks, 4);
    EXPECT_EQ(origin->seen.microbatch, 0);
    EXPECT_SAYS(origin->text(4), "on rank 0 (");
    EXPECT_SAYS(origin->text(4),
                "and, independently, on 3 other ranks: microbatch 0, forward of model.layers.1.self_attn");
  });
}

TEST(OnDeviceFiniteWatch, TheLayerIsNamedInWhichTheFirstCameUp) {
  const RunConfig config = config_with({.name = ""});
  TrainState state(config, {}, {.device = guarded::device_of_tests()});
  initialize_parameters(config.model, 1, state.model.parameters);
  state.model.parameters.weight("model.layers.1.mlp.gate.weight").value.fill_(NAN);
  const auto watch = std::make_shared<FiniteWatch>(state.model.mesh, state.model.device());
  state.observers.add(watch);
  const Batch batch = fixed_batch(config);
  EXPECT_EQ(train_step(state, batch).verdict, Verdict::kRefuse);
  const auto origin = find_origin(watch->first(), state.model.mesh, state.model.device());
  ASSERT_TRUE(origin);
  EXPECT_EQ(origin->seen.place, "model.layers.1");
  EXPECT_EQ(origin->seen.phase, "forward");
}

TEST(FiniteWatch, TheBitsOfAStepDoNotDependOnIt) {
  const RunConfig config = config_with({.name = "", .data = 2, .tensor = 2, .expert = 2});
  std::map<int, Tensor> gradients;
  std::mutex mutex;
  for (const bool watched : {false, true}) {
    comm::run_ranks(4, [&](comm::World& world) {
      Mesh mesh(Layout(config, 4), world);
      TrainState state(config, {}, mesh);
      initialize_parameters(config.model, 1, state.model.parameters);
      if (watched) state.observers.add(std::make_shared<FiniteWatch>(mesh));
      compute_gradients(state, fixed_batch(config));
      const std::lock_guard lock(mutex);
      if (watched) {
        EXPECT_TRUE(at::equal(gradients.at(world.rank()), state.model.parameters.grad()));
      }
      gradients[world.rank()] = state.model.parameters.grad().clone();
    });
  }
}

}  // namespace
}  // namespace athanor::finite_watch_test

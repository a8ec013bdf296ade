#include "watch/integrity.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/testing/folder_test.h"
#include "comm/thread_ranks.h"
#include "guarded/device.h"
#include "model/initialize.h"
#include "train/testing/batches.h"
#include "train/testing/layout_cases.h"
#include "train/testing/steps.h"
#include "train/train_step.h"

namespace athanor::integrity_test {
namespace {

void flip(const Tensor& values, int64_t element, int bit) {
  auto* bytes = static_cast<unsigned char*>(values.data_ptr()) + element * values.element_size();
  bytes[bit / 8] ^= static_cast<unsigned char>(1 << (bit % 8));
}

TEST(BlockHashes, EveryBitThatFlipsIsFoundInItsBlock) {
  const auto hasher = ops::MemoryHasher::of(at::kCPU);
  constexpr int64_t kSize = (int64_t{1} << 16) + 100;
  for (const auto type : {at::kFloat, at::kBFloat16, at::kLong}) {
    const Tensor values = at::arange(kSize, at::kFloat).to(type);
    const BlockHashes before(values, *hasher);
    EXPECT_FALSE(before.first_difference(BlockHashes(values, *hasher)));
    for (const int64_t element : {int64_t{0}, int64_t{70}, kSize - 101, kSize - 100, kSize - 1}) {
      for (int bit = 0; bit < values.element_size() * 8; ++bit) {
        flip(values, element, bit);
        const auto range = before.first_difference(BlockHashes(values, *hasher));
        ASSERT_TRUE(range) << element << " " << bit;
        EXPECT_TRUE(range->begin <= element && element < range->end);
        EXPECT_NE(before.combined(), BlockHashes(values, *hasher).combined());
        flip(values, element, bit);
      }
    }
  }
}

// What a job does in which a bit flips at a moment of a step on one rank.
enum class When { kNever, kInTheStep, kBeforeTheStep, kAfterTheUpdate };
struct Flip {
  When when = When::kNever;
  int rank = 0;
  std::string what = "weights";
};

Tensor memory_of(const TrainState& state, const std::string& what) {
  if (what == "weights") return state.model.parameters.weight("model.norm.weight").value;
  if (what == "master") return state.model.parameters.master_low();
  return state.optimizer.set.optimizers().front()->state(what);
}

// Returns the message of each rank; "" if it went through three steps.
std::vector<std::string> run(const LayoutCase& layout, const Flip& planned, int64_t interval = 1,
                             const std::string& sharding = "ep_aware") {
  RunConfig config = config_with(layout);
  config.parallelism.sharding = sharding;
  std::vector<std::string> said(static_cast<size_t>(layout.ranks()));
  comm::run_ranks(layout.ranks(), [&](comm::World& world) {
    Mesh mesh(Layout(config, layout.ranks()), world);
    TrainState state(config, {}, mesh);
    initialize_parameters(config.model, 1, state.model.parameters);
    Integrity integrity(state, interval);
    const auto flip_if = [&](When when, int64_t step) {
      if (planned.when == when && planned.rank == world.rank() && step == 2) flip(memory_of(state, planned.what), 3, 5);
    };
    const auto before_update = [&] {
      flip_if(When::kInTheStep, state.position.step + 1);
      integrity.before_update();
    };
    const Batch batch = fixed_batch(config);
    try {
      for (int64_t step = 1; step <= 3; ++step) {
        flip_if(When::kBeforeTheStep, step);
        integrity.begin_step(step);
        step_with(state, batch, before_update);
        flip_if(When::kAfterTheUpdate, step);
        integrity.after_update(step);
      }
    } catch (const NumbersError& error) {
      EXPECT_EQ(error.exit_code(), exit_code::kNumbersOfANode);
      EXPECT_EQ(state.position.step, interval == 3 ? 2 : 1) << "the step was applied";
      EXPECT_EQ(error.rank(), std::strstr(error.what(), "not known") ? -1 : planned.rank);
      said[static_cast<size_t>(world.rank())] = error.what();
    }
  });
  return said;
}

TEST(Integrity, NothingIsFoundInMemoryThatOnlyTheStepChanges) {
  for (const LayoutCase& layout : kLayoutCases) {
    for (const auto& said : run(layout, {})) EXPECT_EQ(said, "") << layout.name;
  }
}

TEST(Integrity, ABitThatFlipsInAStepIsFoundOnItsRankWhateverItIsIn) {
  for (const std::string what : {"weights", "master", "exp_avg", "exp_avg_sq"}) {
    for (const int rank : {0, 3}) {
      const LayoutCase layout{.name = "", .data = 2, .tensor = 2, .expert = 2, .dtype = "bfloat16"};
      for (const auto& said : run(layout, {When::kInTheStep, rank, what}))
        EXPECT_SAYS(said, fmt::format("step 2: silent corruption on rank {} (", rank)) << what;
    }
  }
}

TEST(Integrity, ARankWhoseWeightsDifferFromThoseOfTheOthersIsNamed) {
  for (const auto& said : run({.name = "", .data = 3}, {When::kBeforeTheStep, 2})) {
    EXPECT_SAYS(said, "step 2: silent corruption on rank 2 (");
    EXPECT_SAYS(said, "its weights differ from those of 2 others");
  }
  for (const auto& said : run({.name = "", .data = 2}, {When::kBeforeTheStep, 1}))
    EXPECT_SAYS(said, "which of them are wrong is not known");
}

// Between two steps that are checked nothing is hashed: what flips there is in the first hashes.
TEST(Integrity, CopiesThatBecameUnequalInAStepThatWasNotCheckedAreFoundInTheNextThatIs) {
  struct Case {
    LayoutCase layout;
    std::string sharding, what, words;
  };
  const std::vector<Case> cases = {
      {{.name = "data ranks", .data = 3}, "none", "weights", "its weights differ from those of 2 others"},
      {{.name = "data ranks", .data = 3}, "none", "exp_avg", "its values of exp_avg differ from those of 2 others"},
      {{.name = "16 bits", .data = 3, .dtype = "bfloat16"},
       "none",
       "master",
       "its values of the lower bits of the master"},
      {{.name = "tensor ranks", .tensor = 4}, "ep_aware", "weights", "its weights differ from those of 3 others"},
  };
  for (const Case& each : cases) {
    for (const auto& said : run(each.layout, {When::kAfterTheUpdate, 2, each.what}, 3, each.sharding)) {
      EXPECT_SAYS(said, "step 3: silent corruption on rank 2 (") << each.layout.name << " " << each.what;
      EXPECT_SAYS(said, each.words);
    }
  }
}

TEST(Integrity, StateThatNoOtherRankHoldsIsNotFoundInAStepThatIsNotChecked) {
  for (const auto& said : run({.name = "", .data = 3}, {When::kAfterTheUpdate, 2, "exp_avg"}, 3)) EXPECT_EQ(said, "");
}

TEST(Integrity, OfTwoCopiesThatDifferNeitherRankIsBlamed) {
  for (const auto& said : run({.name = "", .data = 2}, {When::kAfterTheUpdate, 1, "exp_avg"}, 3, "none")) {
    EXPECT_SAYS(said, "step 3: silent corruption: the values of exp_avg of ranks 0 (");
    EXPECT_SAYS(said, "which of them are wrong is not known");
    EXPECT_EQ(said.find("on rank"), std::string::npos) << said;
  }
}

TEST(OnDeviceIntegrity, AFlippedBitIsFoundInItsBlockAndOtherMemoryIsAsItWas) {
  const at::Device device = guarded::device_of_tests();
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const Tensor values = at::arange((int64_t{1} << 22) + 100, at::kFloat).to(type).to(device);
    const auto hasher = ops::MemoryHasher::of(device);
    const auto hashes_now = [&] {
      BlockHashes now(values, *hasher);
      BlockHashes::fetch(std::array{&now});
      return now;
    };
    const BlockHashes before = hashes_now();
    EXPECT_FALSE(before.first_difference(hashes_now()));
    const Tensor bits = values.view(values.element_size() == 2 ? at::kShort : at::kInt);
    for (const int64_t element : {int64_t{7}, (int64_t{1} << 22) + 99}) {
      for (const int bit : {0, 13}) {
        bits.select(0, element).bitwise_xor_(int64_t{1} << bit);
        const auto range = before.first_difference(hashes_now());
        ASSERT_TRUE(range);
        EXPECT_TRUE(range->begin <= element && element < range->end);
        bits.select(0, element).bitwise_xor_(int64_t{1} << bit);
      }
    }
  }
}

TEST(OnDeviceIntegrity, AMomentThatChangesInAStepEndsIt) {
  const RunConfig config = config_with({.name = "", .dtype = "bfloat16"});
  TrainState state(config, {}, {.device = guarded::device_of_tests()});
  initialize_parameters(config.model, 1, state.model.parameters);
  Integrity integrity(state, 1);
  bool flips = false;
  const auto before_update = [&] {
    if (flips) memory_of(state, "exp_avg").view(at::kInt).select(0, 3).bitwise_xor_(32);
    integrity.before_update();
  };
  const auto step = [&](int64_t number) {
    integrity.begin_step(number);
    step_with(state, fixed_batch(config), before_update);
    integrity.after_update(number);
  };
  step(1);
  flips = true;
  std::string said;
  try {
    step(2);
  } catch (const NumbersError& error) {
    said = error.what();
  }
  EXPECT_SAYS(said, "values of exp_avg have changed in memory before the update");
  EXPECT_EQ(state.position.step, 1);
}

TEST(Integrity, AStepThatIsNotCheckedCostsNothingAndFindsNothing) {
  for (const auto& said : run({.name = "", .data = 2}, {When::kInTheStep, 1, "exp_avg"}, /*interval=*/3))
    EXPECT_EQ(said, "");
}

}  // namespace
}  // namespace athanor::integrity_test

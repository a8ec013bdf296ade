// Bits that flip in the memory of devices, and faults that are rehearsed there. Ranks are threads, each with a device
// that the host plays, whose memory the host cannot touch.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include "base/testing/folder_test.h"
#include "train/testing/device_case.h"
#include "train/testing/steps.h"
#include "watch/integrity.h"
#include "watch/rehearsals.h"
#include "watch/testing/planned_numbers.h"

namespace athanor::device_integrity_test {
namespace {

using guarded::Order;

struct Job {
  LayoutCase layout;
  std::optional<FaultConfig> fault = {};  // in step 2
  int64_t interval = 1;
  std::string sharding = "ep_aware";

  /// The last step: the one after the fault, if the first check is there.
  int64_t steps() const { return interval == 3 ? 3 : 2; }
};

struct Told {
  std::vector<std::string> errors;  // a rank's; "" if it went through all steps
  std::vector<int> ranks;           // that they name
  ops::TransferCounts transfers;    // those of the last step that was done, of all ranks
  int64_t waits = 0, copies = 0;    // the same, counted by the devices, in step 2
};

int64_t waits_of_all_devices() {
  int64_t waits = 0;
  for (int device = 0; device < guarded::kMostDevices; ++device) waits += guarded::queues(device).counts().waits;
  return waits;
}

class OnDevicesIntegrity : public FolderTest {
 protected:
  Told run(const Job& job, const Order& order = {}) const {
    RunConfig config = config_with(job.layout);
    config.train.global_batch_size = job.layout.data;  // one microbatch
    config.parallelism.sharding = job.sharding;
    config.train.run_dir = folder_.string();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    if (job.fault) config.faults.plan = {*job.fault};
    const auto ranks = static_cast<size_t>(job.layout.ranks());
    Told told{std::vector<std::string>(ranks), std::vector<int>(ranks, -1), {}};
    comm::run_device_ranks(job.layout.ranks(), [&](comm::World& world, at::Device device) {
      guarded::queues().set_order(order);
      Mesh mesh(Layout(config, job.layout.ranks()), world);
      mesh.use(device);
      TrainState state(config, {}, mesh, {.device = device});
      initialize_parameters(config.model, 1, state.model.parameters);
      RunContext at;
      const auto rehearsals = std::make_shared<Rehearsals>(config.faults, state, at);
      if (job.fault) state.observers.add(rehearsals);
      Integrity integrity(state, job.interval);
      const Batch batch = fixed_batch(config);
      const auto rank = static_cast<size_t>(world.rank());
      try {
        for (int64_t step = 1; step <= job.steps(); ++step) {
          at.set_step(step);
          world.all().barrier();
          const ops::TransferCounts before = ops::transfer_counts();
          const int64_t waits = waits_of_all_devices();
          const guarded::CopyCounts copies = guarded::copy_counts();
          world.all().barrier();
          integrity.begin_step(step);
          step_with(state, batch, [&] { integrity.before_update(); });
          world.all().barrier();
          if (world.rank() == 0 && step == 2) {
            told.transfers = ops::transfer_counts() - before;
            told.waits = waits_of_all_devices() - waits;
            told.copies = guarded::copy_counts().to_host - copies.to_host;
          }
          world.all().barrier();
          integrity.after_update(step);
        }
      } catch (const NumbersError& error) {
        EXPECT_EQ(error.exit_code(), exit_code::kNumbersOfANode);
        EXPECT_EQ(state.position.step, job.interval == 3 ? 2 : 1) << "the step was applied";
        told.errors[rank] = error.what();
        told.ranks[rank] = error.rank();
      }
      guarded::queues().synchronize_all();
      world.all().barrier();
      guarded::queues().set_order({});
    });
    return told;
  }
  void flips_are_found(const std::function<LayoutCase(const std::string& kind)>& layout_of) const;
};
class TestAllOnDevicesIntegrity : public OnDevicesIntegrity {};

FaultConfig fault_of(const std::string& kind, int rank, const std::string& phase) {
  FaultConfig fault;
  fault.kind = kind, fault.rank = rank, fault.step = 2, fault.phase = phase;
  return fault;
}

const LayoutCase kSharing{
    .name = "tensor and experts", .data = 2, .tensor = 2, .expert = 2, .dtype = "bfloat16", .sequence = true};

TEST_F(OnDevicesIntegrity, NothingIsFoundInMemoryThatOnlyTheStepChanges) {
  for (const LayoutCase& layout : {LayoutCase{.name = "data", .data = 2}, kSharing})
    for (const auto& said : run({layout}, {Order::Kind::kDrawn, 3}).errors) EXPECT_EQ(said, "") << layout.name;
}

// `layout_of` a kind has a rank for it.
void OnDevicesIntegrity::flips_are_found(const std::function<LayoutCase(const std::string& kind)>& layout_of) const {
  const std::map<std::string, std::string> words = {
      {"flip_weight", "the weights have changed in memory before the update: "},
      {"flip_master", "values of the lower bits of the master have changed in memory before the update: "},
      {"flip_moment", "values of exp_avg have changed in memory before the update: "}};
  int number = 0;
  for (const auto& [kind, what] : words) {
    const char* phase = ++number % 2 == 0 ? "forward" : "reduce";
    const LayoutCase layout = layout_of(kind);
    const int rank = std::min(number, layout.ranks() - 1);
    const Told told = run({layout, fault_of(kind, rank, phase)}, {Order::Kind::kDrawn, 5});
    for (const auto& said : told.errors) {
      EXPECT_SAYS(said, fmt::format("step 2: silent corruption on rank {} (", rank)) << kind << " " << phase;
      EXPECT_SAYS(said, what);
      EXPECT_SAYS(said, " (elements ");
    }
    EXPECT_EQ(told.ranks, std::vector<int>(static_cast<size_t>(layout.ranks()), rank));
  }
}

TEST_F(OnDevicesIntegrity, ABitThatFlipsInAStepIsFoundOnItsRankWhateverItIsIn) {
  const LayoutCase experts{.name = "experts", .data = 2, .expert = 2, .dtype = "bfloat16"};
  flips_are_found([&](const std::string& kind) { return kind == "flip_moment" ? kSharing : experts; });
}
TEST_F(TestAllOnDevicesIntegrity, ABitThatFlipsInAStepIsFoundOnItsRankWhateverItIsIn) {
  flips_are_found([](const std::string&) { return kSharing; });
}

// The bit flips in a step that is not checked.
TEST_F(OnDevicesIntegrity, ARankWhoseWeightsDifferFromThoseOfTheOthersIsNamed) {
  Job job{{.name = "", .data = 3}, fault_of("flip_weight", 2, "reduce"), /*interval=*/3, "none"};
  for (const auto& said : run(job).errors) {
    EXPECT_SAYS(said, "step 3: silent corruption on rank 2 (");
    EXPECT_SAYS(said, "its weights differ from those of 2 others");
  }
}

TEST_F(OnDevicesIntegrity, AStepThatIsCheckedHasTwoWaitsMoreAndOthersHaveNone) {
  const LayoutCase layout{.name = "", .data = 3, .dtype = "bfloat16"};
  const Told unchecked = run({layout, {}, /*interval=*/0}), checked = run({layout, {}, /*interval=*/1});
  EXPECT_EQ(unchecked.transfers.waits, 3);
  EXPECT_EQ(checked.transfers.waits, 3 * (1 + 2));
  EXPECT_EQ(checked.waits, checked.transfers.waits) << "a wait that is not counted";
  EXPECT_EQ(checked.copies, checked.transfers.copies_to_host);
  EXPECT_EQ(run({layout, {}, /*interval=*/3}).transfers.waits, 3) << "in a step that is not checked";
}

// ---- rehearsals

TEST_F(OnDevicesIntegrity, ARehearsedFaultNeitherWaitsForItsDeviceNorCopiesFromIt) {
  const LayoutCase layout{.name = "", .data = 2, .dtype = "bfloat16"};
  const Told plain = run({layout, {}, /*interval=*/0});
  const std::vector<std::pair<const char*, const char*>> faults = {
      {"nan", "forward"},        {"nan", "backward"},        {"nan", "reduce"},           {"scale", "reduce"},
      {"nan_weight", "forward"}, {"flip_weight", "forward"}, {"flip_master", "backward"}, {"flip_moment", "reduce"}};
  for (const auto& [kind, phase] : faults) {
    const Told told = run({layout, fault_of(kind, 1, phase), /*interval=*/0});
    EXPECT_EQ(told.waits, plain.waits) << kind << " " << phase;
    EXPECT_EQ(told.copies, plain.copies) << kind << " " << phase;
    EXPECT_TRUE(std::filesystem::exists(folder_ / "log" / "faults" / "0")) << kind << " " << phase;
  }
}

}  // namespace
}  // namespace athanor::device_integrity_test

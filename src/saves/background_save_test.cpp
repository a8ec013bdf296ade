#include "saves/background_save.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/files.h"
#include "base/wall_clock.h"
#include "comm/testing/guarded_groups.h"
#include "layout/memory.h"
#include "ops/transfer.h"
#include "saves/staging_pool.h"
#include "saves/testing/ranks.h"
#include "train/testing/batches.h"
#include "train/testing/device_case.h"
#include "train/testing/steps.h"

namespace athanor::background_save_test {
namespace {

using guarded::Order;

class BackgroundSaves : public Ranks {
 protected:
  static std::map<std::string, std::string> files_of(const fs::path& checkpoint) {
    std::map<std::string, std::string> files;
    for (const auto& each : fs::recursive_directory_iterator(checkpoint))
      if (each.is_regular_file()) files[each.path().lexically_relative(checkpoint)] = read_file(each.path());
    return files;
  }

  // The same state in another folder, so that the files differ in nothing but what is in them.
  static void save_at_once(TrainState& state, const std::string& run_dir) {
    const std::string own = std::exchange(state.config.train.run_dir, run_dir);
    save_checkpoint(state);
    state.config.train.run_dir = own;
  }
};

const std::vector<Degrees> kSomeLayouts = {
    kOne, {1, 2, 1, "none"}, {1, 4, 2, "optimizer"}, {2, 2, 2, "hierarchical"}, {1, 2, 2, "ep_aware", 2}};

TEST_F(BackgroundSaves, HaveTheBytesOfTheStateWhenTheyBeganAlthoughStepsFollow) {
  for (const Degrees& degrees : kSomeLayouts) {
    const std::string name = degrees.text();
    const RunConfig at_once = config(degrees, "once" + name), later = config(degrees, "later" + name);
    on_ranks(later, [&](TrainState& state) {
      initialize(state);
      BackgroundSave saves(state, [](const SaveOutcome&) {});
      train(state, 2);
      save_at_once(state, at_once.train.run_dir);
      saves.start(state);
      train(state, 2);
      EXPECT_FALSE(saves.take().failure);
      saves.start(state);
      EXPECT_FALSE(saves.take().failure);
    });
    const auto expected = files_of(checkpoint_of(at_once, 2));
    EXPECT_EQ(files_of(checkpoint_of(later, 2)), expected) << name;
    EXPECT_NE(files_of(checkpoint_of(later, 4)), expected) << name;
  }
}

TEST_F(BackgroundSaves, TheMemoryOfTheCopyIsThatOfTheEstimate) {
  for (const Degrees& degrees : kLayouts) {
    RunConfig layout = config(degrees, "run");
    layout.model.hidden_size = 128;  // what pads pieces is small then
    on_ranks(layout, [&](TrainState& state) {
      const BackgroundSave saves(state, [](const SaveOutcome&) {});
      const Mesh& mesh = state.model.mesh;
      const double estimate =
          count_staging_bytes(layout, mesh.layout(), mesh.rank(), plan_optimizers(layout.optimizer));
      // Parts of neighbouring parameters are larger on some ranks and smaller on others.
      double all[] = {static_cast<double>(saves.pool_bytes()), estimate};
      const Tensor sums = at::from_blob(all, {2}, at::kDouble);
      mesh.world().all().all_reduce(sums).wait();
      EXPECT_NEAR(all[0] / all[1], 1, 0.02) << degrees.text();
    });
  }
}

TEST_F(BackgroundSaves, AFailureOfOneRankIsThatOfAllAndTheNextCheckpointIsWritten) {
  const RunConfig run = config({1, 4, 2, "ep_aware"}, "run");
  const fs::path folder = RunFolder{run.train.run_dir}.checkpoints();
  fs::remove_all(folder);
  write_file_atomically(folder, "a file is in the place of the folder");
  on_ranks(run, [&](TrainState& state) {
    initialize(state);
    BackgroundSave saves(state, [](const SaveOutcome&) {});
    train(state, 1);
    saves.start(state);
    const SaveOutcome outcome = saves.take();
    EXPECT_TRUE(outcome.failure);
    if (outcome.failure) {
      EXPECT_THROW(std::rethrow_exception(outcome.failure), IoError);
    }
    state.model.mesh.world().all().barrier();
    if (state.model.mesh.is_first()) fs::remove(folder);
    state.model.mesh.world().all().barrier();
    saves.start(state);
    EXPECT_FALSE(saves.take().failure);
  });
  CheckpointReader::open(checkpoint_of(run, 1)).verify();
}

struct FileTimes {
  int64_t made_ns, written_ns;
};
FileTimes times_of(const fs::path& file) {
  struct statx found {};
  ATHANOR_ASSERT(::statx(AT_FDCWD, file.c_str(), 0, STATX_BTIME | STATX_MTIME, &found) == 0);
  const auto ns = [](const statx_timestamp& time) { return time.tv_sec * 1'000'000'000 + time.tv_nsec; };
  return {ns(found.stx_btime), ns(found.stx_mtime)};
}

TEST_F(BackgroundSaves, NoMoreRanksWriteAtATimeThanAllowed) {
  RunConfig run = config({1, 4, 2, "ep_aware"}, "run");
  run.model.hidden_size = 256;  // a rank writes for longer than the clock of files takes to tick
  run.model.vocab_size = 8192;
  run.checkpoint.concurrent_writers = 1;
  on_ranks(run, [&](TrainState& state) {
    initialize(state);
    BackgroundSave saves(state, [](const SaveOutcome&) {});
    saves.start(state);
    EXPECT_FALSE(saves.take().failure);
  });
  int64_t last_ns = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const auto [made_ns, written_ns] =
        times_of(checkpoint_of(run, 0) / fmt::format("pieces-{:05}-00000.safetensors", rank));
    EXPECT_GE(made_ns, last_ns) << rank;
    last_ns = written_ns;
  }
}

TEST_F(BackgroundSaves, ARankWritesNoFasterThanAllowed) {
  RunConfig run = config(kOne, "run");
  run.checkpoint.write_mb_s = 0.5;
  on_ranks(run, [&](TrainState& state) {
    initialize(state);
    BackgroundSave saves(state, [](const SaveOutcome&) {});
    saves.start(state);
    const SaveOutcome outcome = saves.take();
    const double paid = static_cast<double>(outcome.num_bytes) / 0.5e6;
    EXPECT_GT(paid, 0.2);
    EXPECT_GE(outcome.seconds, paid - 1);  // the first second's bytes are free
  });
}

TEST_F(BackgroundSaves, ARunThatFailsWaitsForNoRankThatDoesNotCome) {
  const RunConfig run = config({1, 2, 1, "ep_aware"}, "run");
  on_ranks(run, [&](TrainState& state) {
    initialize(state);
    try {
      BackgroundSave saves(state, [](const SaveOutcome&) {});
      if (state.model.mesh.is_first()) saves.start(state);
      throw Error("the run has failed");
    } catch (const Error&) {
    }
  });
  EXPECT_TRUE(list_checkpoints(RunFolder{run.train.run_dir}.checkpoints()).empty());
}

// ---- Devices

const std::vector<Order> kOrders = {Order{Order::Kind::kEarliest}, Order{Order::Kind::kLatest},
                                    Order{Order::Kind::kDrawn, 1}, Order{Order::Kind::kDrawn, 2}};

class OnDevicesBackgroundSaves : public BackgroundSaves {
 protected:
  // Few microbatches, since a guarded device takes long for each kernel.
  RunConfig config_there(const Degrees& degrees, const std::string& name) const {
    RunConfig c = config(degrees, name);
    c.train.micro_batch_size = 3;
    return c;
  }
  // Calls `act` on each rank with a state that has taken a step.
  static void on_devices(const RunConfig& run, const Order& order, const std::function<void(TrainState&)>& act) {
    const int ranks = static_cast<int>(run.parallelism.data_parallel_shard_degree);
    comm::run_device_ranks(ranks, [&](comm::World& world, at::Device device) {
      guarded::queues().set_order(order);
      Mesh mesh(Layout(run, ranks), world);
      if (ranks > 1) mesh.use(device);
      TrainStateOptions options;
      options.device = device;
      TrainState state(run, {}, mesh, std::move(options));
      initialize(state);
      train(state, 1);
      act(state);
      guarded::queues().synchronize_all();
      world.all().barrier();
      guarded::queues().set_order({});
    });
  }
};

TEST_F(OnDevicesBackgroundSaves, HaveTheNumbersOfTheirStepInEachOrder) {
  for (const Degrees& degrees : {kOne, Degrees{1, 2, 2, "ep_aware"}}) {
    const RunConfig run = config_there(degrees, fmt::format("run{}", degrees.shard));
    std::optional<std::map<std::string, Tensor>> expected;
    for (const Order& order : kOrders) {
      if (degrees.shard > 1 && order.kind == Order::Kind::kEarliest)
        continue;  // the other three show a difference, too
      fs::remove_all(checkpoint_of(run, 1));
      on_devices(run, order, [&](TrainState& state) {
        BackgroundSave saves(state, [](const SaveOutcome&) {});
        saves.start(state);
        step_with(state, batch(0), [&] { saves.before_update(); });
        EXPECT_FALSE(saves.take().failure);
      });
      const auto found = tensors_of(checkpoint_of(run, 1));
      if (expected) expect_equal(found, *expected, "order");
      expected = found;
    }
  }
}

// Returns all that was copied while a step followed, and how often the host waited for the copy.
std::pair<std::vector<float>, int64_t> copied(TrainState& state, bool update_waits) {
  const auto pieces = state_pieces(state);
  StagingPool pool(pieces, {}, state.model.device());
  const int64_t before = ops::transfer_counts().waits;
  const auto copy = pool.copy(pieces, {});
  const int64_t waits = ops::transfer_counts().waits - before;
  step_with(state, fixed_batch(state.config), [&] {
    if (update_waits) pool.follow();
  });
  guarded::queues().synchronize_all();
  std::vector<float> values;
  for (const PieceView& piece : copy.pieces)
    values.insert(values.end(), piece.data, piece.data + piece.slice.num_elements());
  return {values, waits};
}

TEST_F(OnDevicesBackgroundSaves, CopiesAreThoseOfTheStateBeforeTheNextUpdateBecauseItWaitsForThem) {
  const RunConfig run = config_there(kOne, "run");
  std::vector<float> expected;
  int64_t num_different = 0;
  for (const Order& order : kOrders) {
    on_devices(run, order, [&](TrainState& state) {
      const auto [values, waits] = copied(state, true);
      if (expected.empty()) expected = values;
      EXPECT_EQ(values, expected);
      EXPECT_EQ(waits, 0) << "the host waits for none";
    });
    on_devices(run, order, [&](TrainState& state) { num_different += copied(state, false).first != expected; });
  }
  EXPECT_GT(num_different, 0) << "without the wait an order should show it";
}

}  // namespace
}  // namespace athanor::background_save_test

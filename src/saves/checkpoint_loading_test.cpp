// What a start loads if checkpoints are damaged or not finite. Several ranks are threads.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "checkpoint/model_identity.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/writer.h"
#include "parallel/share.h"
#include "saves/moment_ages.h"
#include "saves/testing/ranks.h"
#include "train/state_pieces.h"
#include "train/testing/batches.h"
#include "train/testing/device_case.h"

namespace athanor::checkpoint_loading_test {
namespace {

class Loading : public Ranks {
 protected:
  /// A run whose state has everything that a checkpoint sets: shares and biases of routers, too.
  RunConfig with_routers(const Degrees& degrees, const std::string& run) const {
    RunConfig c = config(degrees, run);
    c.moe.bias_update_rate = 0.01;
    c.checkpoint.model_interval = 0;
    return c;
  }
  static fs::path checkpoints_of(const RunConfig& config) { return RunFolder{config.train.run_dir}.checkpoints(); }

  static void damage(const fs::path& checkpoint, const Piece& piece) {
    damage_byte(checkpoint / piece.file_name(), piece.byte_offset + piece.num_bytes() / 2);
  }
  static void load_newest_or_throw(TrainState& state, const fs::path& folder) {
    if (!load_newest_checkpoint(state, folder)) throw std::runtime_error("every checkpoint is damaged");
  }
  /// The numbers that a checkpoint keeps in addition to tensors, without the configuration.
  static nlohmann::json numbers_of(const fs::path& checkpoint) {
    auto numbers = CheckpointReader::open(checkpoint).state();
    numbers.erase("config");
    return numbers;
  }
  /// Writes the checkpoint of the state's step again with what the state holds now, also with elements that are not
  /// finite, which no run would write.
  static void write_again(const TrainState& state) {
    const Team team = team_of(state.model.mesh);
    const fs::path folder = RunFolder{state.config.train.run_dir}.checkpoints() / step_folder_name(state.position.step);
    const auto [model, numbers] = [&] {
      const auto reader = CheckpointReader::open(folder);
      return std::pair(reader.manifest().model, reader.manifest().state);
    }();
    team.on_all([] {});
    team.on_first([&] { fs::remove_all(folder); });
    write_checkpoint(folder, state_pieces(state), model, numbers, {}, {}, team);
  }
  /// Replaces elements of a bf16 tensor of a model by -inf.
  static void put_infinity(const fs::path& model, const std::string& tensor, std::initializer_list<uint64_t> elements) {
    const fs::path file = model / "model.safetensors";
    const uint64_t begin = SafetensorsFile::open(file).entry(tensor).begin;
    std::string bytes = read_file(file);
    for (const uint64_t i : elements) {
      bytes.at(begin + 2 * i) = '\x80';
      bytes.at(begin + 2 * i + 1) = '\xff';
    }
    write_file_atomically(file, bytes);
  }
  static Tensor moment(TrainState& state) { return state.optimizer.set.optimizers().front()->state("exp_avg"); }

  /// Damages the newest checkpoint of a run on one layout, and continues from it on others.
  void expect_same_bits_past_damage(const Degrees& degrees, const std::vector<Degrees>& next) const {
    const RunConfig first = with_few_microbatches(with_routers(degrees, "run " + degrees.text()));
    on_ranks(first, [](TrainState& state) {
      initialize(state);
      train(state, 1);
      save_checkpoint(state);
      train(state, 1);
      save_checkpoint(state);
    });
    const fs::path without = folder_ / ("without " + degrees.text()), newest = checkpoint_of(first, 2);
    fs::create_directories(without);
    fs::copy(checkpoint_of(first, 1), without / step_folder_name(1));
    {
      const auto reader = CheckpointReader::open(newest);
      damage(newest, reader.manifest().pieces.back());  // what lies before it has been filled by then
    }
    for (size_t i = 0; i < next.size(); ++i) {
      const std::string where = degrees.text() + " to " + next[i].text();
      std::vector<fs::path> ends;
      for (const fs::path& from : {checkpoints_of(first), without}) {
        const std::string name = fmt::format("then {} {} {}", degrees.text(), i, ends.size());
        const RunConfig then = with_few_microbatches(with_routers(next[i], name));
        on_ranks(then, [&](TrainState& state) {
          load_newest_or_throw(state, from);
          train(state, 2);
          save_checkpoint(state);
        });
        ends.push_back(checkpoint_of(then, 3));
      }
      expect_equal(tensors_of(ends[0]), tensors_of(ends[1]), where);
      EXPECT_EQ(numbers_of(ends[0]), numbers_of(ends[1])) << where;
    }
  }
};
using TestAllLoading = Loading;

// Each layout is resumed by itself or by another.
TEST_F(Loading, AResumePastADamagedNewestHasTheBitsOfOneThatNeverHadIt) {
  expect_same_bits_past_damage(kLayouts[0], {kLayouts[9]});
  expect_same_bits_past_damage(kLayouts[2], {kLayouts[2]});
  expect_same_bits_past_damage(kLayouts[6], {kLayouts[1]});
  expect_same_bits_past_damage({2, 1, 2, "hierarchical", 2, 2}, {kOne});
}

TEST_F(TestAllLoading, AResumePastADamagedNewestHasTheBitsOfOneThatNeverHadIt) {
  for (const size_t i : {0, 2, 4, 6, 10})
    expect_same_bits_past_damage(kLayouts[i], {kLayouts[i], kLayouts[1], kLayouts[9]});
}

TEST_F(Loading, MomentsOfADamagedNewestDoNotStayIfTheOlderOneBringsNone) {
  RunConfig c = with_routers(kOne, "run");
  c.checkpoint.fresh_moments = true;  // used if the newest lacks them
  on_ranks(c, [&](TrainState& state) {
    initialize(state);
    train(state, 1);
    write_checkpoint(checkpoint_of(c, 1), master_pieces(state.model), model_identity(c.model), state_json(state));
    train(state, 1);
    save_checkpoint(state);
  });
  const auto reader = CheckpointReader::open(checkpoint_of(c, 2));
  damage(reader.folder(), reader.manifest().pieces.back());
  on_ranks(c, [&](TrainState& state) {
    load_newest_or_throw(state, checkpoints_of(c));
    EXPECT_EQ(state.position.step, 1);
    for (const auto& optimizer : state.optimizer.set.optimizers())
      for (const HeldState& held : optimizer->state()) EXPECT_EQ(held.values.count_nonzero().item<int64_t>(), 0);
    for (const auto& count : updates_json(state)) EXPECT_EQ(count, 0);
  });
}

TEST_F(Loading, ACheckpointThatIsRefusedSetsNoNumber) {
  const RunConfig c = with_routers({1, 2, 2, "ep_aware"}, "run");
  on_ranks(c, [](TrainState& state) {
    initialize(state);
    train(state, 2);
    state.optimizer.set_fresh_since({{"model.norm.weight", 1}});
    save_checkpoint(state);
  });
  const fs::path path = checkpoint_of(c, 2);
  {
    const auto reader = CheckpointReader::open(path);
    damage(path, reader.manifest().pieces.back());
  }
  on_ranks(c, [&](TrainState& state) {
    const auto before = state_json(state);
    EXPECT_SAYS(message_of<Error>([&] { load_checkpoint(state, CheckpointReader::open(path)); }), "damaged: tensor");
    EXPECT_EQ(state_json(state), before);
    EXPECT_FALSE(load_newest_checkpoint(state, checkpoints_of(c)));
    EXPECT_EQ(state_json(state), before);
  });
}

TEST_F(Loading, AWeightOrMomentThatIsNotFiniteIsNamedOnEveryRankAndTheOlderCheckpointIsTaken) {
  const RunConfig c = with_routers({1, 2, 1, "optimizer"}, "run");
  on_ranks(c, [](TrainState& state) {
    initialize(state);
    train(state, 1);
    save_checkpoint(state);
    train(state, 1);
    save_checkpoint(state);
    if (!state.model.mesh.is_first()) moment(state)[3] = std::nan("");
    write_again(state);
  });
  for (const auto& next : {c, with_routers({1, 3, 1, "ep_aware"}, "other")}) {
    on_ranks(next, [&](TrainState& state) {
      const auto loaded = load_newest_checkpoint(state, checkpoints_of(c));
      if (!loaded || !loaded->not_finite) throw std::runtime_error("nothing was found");
      EXPECT_EQ(loaded->not_finite->path.filename(), step_folder_name(2));
      EXPECT_EQ(loaded->not_finite->first.tensor.substr(0, 8), "exp_avg/");
      EXPECT_EQ(state.position.step, 1);
      const auto refusal =
          message_of<CheckpointError>([&] { load_checkpoint(state, CheckpointReader::open(checkpoint_of(c, 2))); });
      EXPECT_SAYS(refusal, "step-00000002 is not finite although its hashes are right: element [");
    });
  }
}

TEST_F(Loading, TheFirstWeightOfAModelThatIsNotFiniteIsNamedOnEveryRankOfAnyLayout) {
  const RunConfig c = config({1, 2, 1, "optimizer"}, "run");
  on_ranks(c, [](TrainState& state) {
    load_master(state.model, SharedBy::kBroadcast,
                [](const std::string&, int64_t, std::span<float> out) { std::ranges::fill(out, 0.5F); });
    save_model(state);
  });
  const fs::path model = RunFolder{c.train.run_dir}.models() / step_folder_name(0);
  put_infinity(model, "model.embed_tokens.weight", {700, 701});
  for (const auto& next : {c, config({1, 3, 1, "ep_aware"}, "other")}) {
    on_ranks(next, [&](TrainState& state) {
      const int64_t columns = state.config.model.hidden_size;
      EXPECT_SAYS(message_of<CheckpointError>([&] { load_model_weights(state, model); }),
                  fmt::format("step-00000000 is not finite: element [{}, {}] of model.embed_tokens.weight is -inf",
                              700 / columns, 700 % columns));
    });
  }
}

TEST_F(Loading, RanksAgreeOnTheLargestOfEachNumberWhichDecidesWhoHashes) {
  on_ranks(config({1, 3, 1, "ep_aware"}, "run"), [](TrainState& state) {
    const Team team = team_of(state.model.mesh);
    std::vector<int64_t> numbers{team.index, 10 - team.index, (int64_t{1} << 60) + team.index, 0};
    team.max(numbers);
    EXPECT_EQ(numbers, (std::vector<int64_t>{2, 10, (int64_t{1} << 60) + 2, 0}));
  });
}

TEST_F(Loading, OnDeviceTooWhatIsNotFiniteIsFoundAndTheOlderCheckpointHasAllBits) {
  const RunConfig c = with_routers(kOne, "run");
  std::map<std::string, Tensor> expected;
  on_ranks(c, [&](TrainState& state) {
    initialize(state);
    train(state, 1);
    save_checkpoint(state);
    for (const auto& entry : state.model.parameters.table())
      expected[entry.name] = state.model.parameters.master_copy(entry.name).clone();
    train(state, 1);
    const auto& entry = state.model.parameters.entry("model.norm.weight");
    const float infinity = std::numeric_limits<float>::infinity();
    save_checkpoint(state);
    state.model.parameters.write_master(entry, 5, {&infinity, 1});
    write_again(state);
  });
  const auto options = [] { return TrainStateOptions{.device = guarded::device_of_tests()}; };
  on_ranks(
      c,
      [&](TrainState& state) {
        const auto loaded = load_newest_checkpoint(state, checkpoints_of(c));
        ASSERT_TRUE(loaded && loaded->not_finite);
        EXPECT_EQ(loaded->not_finite->first.text(), "element [5] of master/model.norm.weight is inf");
        for (const auto& [name, master] : expected)
          EXPECT_TRUE(same_bits(state.model.parameters.master_copy(name), master)) << name;
      },
      options);
}

}  // namespace
}  // namespace athanor::checkpoint_loading_test

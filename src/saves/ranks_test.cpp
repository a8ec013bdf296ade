// Tests what several ranks hold, send and write together; ranks are threads. `athanor verify` shows that they train as
// one rank does (tests/mpi).

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <mutex>

#include "base/error.h"
#include "base/files.h"
#include "layout/memory.h"
#include "saves/moment_ages.h"
#include "saves/testing/ranks.h"
#include "train/testing/batches.h"
#include "train/testing/steps.h"

namespace athanor::ranks_test {
namespace {

class Ranks : public athanor::Ranks {
 protected:
  static void start(const RunConfig& run, int64_t steps) {
    on_ranks(run, [&](TrainState& state) {
      initialize(state);
      train(state, steps);
      save_checkpoint(state);
    });
  }

  void expect_same_bits_again(const RunConfig& a, const RunConfig& b, int64_t steps) const {
    for (const RunConfig& run : {a, b}) start(run, steps);
    expect_equal(tensors_of(checkpoint_of(a, steps)), tensors_of(checkpoint_of(b, steps)),
                 a.parallelism.sharding.word());
  }

  void expect_same_bits_after_a_cut(const RunConfig& whole, const RunConfig& cut, int64_t steps) const {
    start(whole, 2 * steps);
    start(cut, steps);
    on_ranks(cut, [&](TrainState& state) {
      load_checkpoint(state, CheckpointReader::open(checkpoint_of(cut, steps)));
      train(state, steps);
      save_checkpoint(state);
    });
    expect_equal(tensors_of(checkpoint_of(whole, 2 * steps)), tensors_of(checkpoint_of(cut, 2 * steps)),
                 whole.parallelism.sharding.word());
  }
};
using TestAllRanks = Ranks;

TEST_F(Ranks, AnyLayoutReadsTheCheckpointOfAnyOtherBitForBit) {
  const RunConfig first = config(kOne, "one");
  on_ranks(first, [](TrainState& state) {
    initialize(state);
    train(state, 2);
    save_checkpoint(state);
  });
  fs::path before = checkpoint_of(first, 2);
  const auto expected = tensors_of(before);
  for (size_t i = 0; i < kLayouts.size(); ++i) {
    RunConfig next = config(kLayouts[i], fmt::format("layout{}", i));
    next.checkpoint.load = i % 2 ? "broadcast" : "all_reduce";
    on_ranks(next, [&](TrainState& state) {
      load_checkpoint(state, CheckpointReader::open(before));
      save_checkpoint(state);
    });
    before = checkpoint_of(next, 2);
    expect_equal(expected, tensors_of(before), fmt::format("layout {}", i));
  }
}

TEST_F(Ranks, UpdatesOfEachParameterAreTheSameUnderAnyLayout) {
  const RunConfig first = config(kOne, "one");
  const std::map<std::string, int64_t> fresh_since{{"model.norm.weight", 1},
                                                   {"model.layers.2.mlp.experts.gate_proj.weight", 2}};
  on_ranks(first, [&](TrainState& state) {
    initialize(state);
    train(state, 1);
    for (const auto& [name, since] : fresh_since) state.model.parameters.entry(name);  // throws if there is none
    state.optimizer.set_fresh_since(fresh_since);
    state.position.step = 2;
    save_checkpoint(state);
  });
  fs::path before = checkpoint_of(first, 2);
  const auto expected = CheckpointReader::open(before).state().at("optimizer_updates");
  EXPECT_EQ(expected.at("model.norm.weight"), 1);
  EXPECT_EQ(expected.at("lm_head.weight"), 2);
  for (size_t i = 0; i < kLayouts.size(); i += 3) {
    const RunConfig next = config(kLayouts[i], fmt::format("updates{}", i));
    on_ranks(next, [&](TrainState& state) {
      load_checkpoint(state, CheckpointReader::open(before));
      if (state.optimizer.fresh_since != fresh_since) throw std::runtime_error("other updates");
      save_checkpoint(state);
    });
    before = checkpoint_of(next, 2);
    EXPECT_EQ(CheckpointReader::open(before).state().at("optimizer_updates"), expected) << i;
  }
}

TEST_F(Ranks, AStepThatTheGuardRefusesCountsNoUpdate) {
  on_ranks(config(kOne, "guard"), [](TrainState& state) {
    initialize(state);
    train(state, 1);
    EXPECT_EQ(train_step(state, batch(1), {.grad_norm = 0}).verdict, Verdict::kSpike);
    for (const auto& count : updates_json(state)) EXPECT_EQ(count, 1);
  });
}

TEST_F(Ranks, ADiskThatFillsDuringAModelExportLeavesNothingAndTheNextExportWorks) {
  // The faults hit the first rank's and the second's part in the temporary folder, then the model itself.
  for (const char* fault : {"checkpoint.piece:enospc@1", "checkpoint.piece:enospc@9", "export.block:enospc@3"}) {
    const auto export_twice = [&] {
      const RunConfig c = config({1, 2, 2, "ep_aware"}, "export");
      const fs::path models = RunFolder{c.train.run_dir}.models();
      std::atomic<int> told{0};
      on_ranks(c, [&](TrainState& state) {
        initialize(state);
        try {
          save_model(state);
        } catch (const IoError& error) {
          told += error.disk_full();
        }
        const bool nothing_left = !fs::exists(models) || fs::is_empty(models);
        team_of(state.model.mesh).on_all([] {});  // so that all have looked
        save_model(state);
        if (!nothing_left) throw std::runtime_error("something was left in " + models.string());
      });
      const auto entries = std::distance(fs::directory_iterator(models), {});
      std::_Exit(told == 2 && entries == 1 && fs::exists(models / "step-00000000" / "config.json") ? 0 : 1);
    };
    ::setenv("ATHANOR_FAULT", fault, 1);
    EXPECT_EXIT(export_twice(), testing::ExitedWithCode(0), "") << fault;
    ::unsetenv("ATHANOR_FAULT");
    fs::remove_all(folder_ / "export");
  }
}

TEST_F(Ranks, RanksShareTheFilesOfAModel) {
  // The files are those that one rank writes, byte for byte, whichever rank writes which file.
  const RunConfig one = config(kOne, "export_one"), four = config({1, 4, 2, "ep_aware"}, "export_four");
  for (const RunConfig& c : {one, four}) {
    on_ranks(c, [](TrainState& state) {
      initialize(state);
      save_model(state);
    });
  }
  const auto files_of = [](const RunConfig& c) {
    std::map<std::string, std::string> files;
    const fs::path folder = RunFolder{c.train.run_dir}.models() / step_folder_name(0);
    for (const auto& each : fs::directory_iterator(folder)) files[each.path().filename()] = read_file(each.path());
    return files;
  };
  EXPECT_EQ(files_of(one), files_of(four));
}

TEST_F(Ranks, ACutRunGoesOnUnderItsLayoutWithTheSameBits) {
  for (const size_t i : {1, 3, 8, 9}) {
    const auto run = [&](const char* name) { return with_few_microbatches(config(kLayouts[i], name)); };
    expect_same_bits_after_a_cut(run("whole"), run("cut"), 1);
  }
}
TEST_F(TestAllRanks, ACutRunGoesOnUnderItsLayoutWithTheSameBits) {
  for (const size_t i : {1, 3, 8, 9})
    expect_same_bits_after_a_cut(config(kLayouts[i], "whole"), config(kLayouts[i], "cut"), 2);
}

TEST_F(Ranks, EachHoldsTheBytesOfStateThatTheFormulaSays) {
  for (const Degrees& degrees : kLayouts) {
    for (const bool bf16 : {true, false}) {
      on_ranks(config(degrees, "bytes", bf16 ? "bfloat16" : "float32"), [&](TrainState& state) {
        HeldElements held;
        for (const Bucket& bucket : state.model.parameters.buckets())
          (bucket.replication.is_expert() ? held.expert : held.dense) += bucket.range.size();
        const Layout& layout = state.model.mesh.layout();
        const HeldElements said = count_held_elements(state.config, layout, state.model.mesh.rank());
        int64_t dense = 0, expert = 0;
        for (const BucketEntry& e : state.model.parameters.table())
          (e.replication.is_expert() ? expert : dense) += e.num_elements();
        if (said.dense != dense || said.expert != expert)
          throw std::runtime_error(
              fmt::format("{}: {} elements held, {} computed", degrees.sharding, dense + expert, said.total()));
        const auto need = count_state_bytes(held, count_state_shards(state.config.parallelism, layout), bf16,
                                            declare_optimizer(state.config.optimizer.name));
        size_t bytes = state.model.parameters.grad().nbytes() + state.model.parameters.compute().nbytes() +
                       static_cast<size_t>(state.optimizer.set.state_bytes());
        if (bf16) bytes += state.model.parameters.master_low().nbytes();
        if (static_cast<int64_t>(bytes) != need.total())
          throw std::runtime_error(
              fmt::format("{}: {} bytes held, {} computed", degrees.sharding, bytes, need.total()));
      });
    }
  }
}

// Gradients that are not sent when backward ends delay the update. The best of a few steps counts, as the machine has
// other work.
TEST_F(Ranks, MostOfTheReduceScatterIsSentBeforeBackwardEnds) {
  RunConfig c = config({1, 2, 1, "ep_aware"}, "trace");
  c.model.num_hidden_layers = 8;
  c.train.micro_batch_size = 6;  // 768 tokens: layers take several times longer than sending their gradients
  c.data.seq_len = 128;
  on_ranks(c, [](TrainState& state) {
    initialize(state);
    double best = 0;
    for (int64_t step = 0; step < 6; ++step) {
      const ReductionTrace trace = train_step(state, batch(step, 128)).reduction;
      best = std::max(best, static_cast<double>(trace.bytes_sent_in_backward) / static_cast<double>(trace.bytes));
    }
    if (!(best > 0.5)) throw std::runtime_error(fmt::format("{} of the bytes", best));
  });
}

TEST_F(Ranks, TwoRunsOfOneLayoutHaveTheSameBits) {
  for (const Degrees& degrees : {kLayouts[2], Degrees{2, 1, 2, "hierarchical", 2, 2}}) {
    const auto run = [&](const char* name) { return with_few_microbatches(config(degrees, name)); };
    expect_same_bits_again(run("a"), run("b"), 2);
  }
}
TEST_F(TestAllRanks, TwoRunsOfOneLayoutHaveTheSameBits) {
  for (const size_t i : {2, 10}) expect_same_bits_again(config(kLayouts[i], "a"), config(kLayouts[i], "b"), 3);
}

TEST_F(Ranks, TheNormIsThatOfTheGradientsThatAreWrittenUnderEverySharding) {
  for (const Degrees& degrees : kLayouts) {
    std::mutex mutex;
    double squares = 0, norm = 0;
    on_ranks(with_few_microbatches(config(degrees, "norm", "float32")), [&](TrainState& state) {
      initialize(state);
      const StepReport report = compute_gradients(state, batch(0));
      double own = 0;
      for (const PieceView& piece : gradient_pieces(state.model)) {
        for (int64_t i = 0; i < piece.slice.num_elements(); ++i)
          own += static_cast<double>(piece.data[i]) * static_cast<double>(piece.data[i]);
      }
      const std::lock_guard lock(mutex);
      squares += own;
      norm = report.grad_norm;
    });
    EXPECT_NEAR(norm, std::sqrt(squares), 1e-12 * norm) << degrees.sharding;  // fp64: 1e-16 for each of 1e4 terms
  }
}

}  // namespace
}  // namespace athanor::ranks_test

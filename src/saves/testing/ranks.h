#pragma once
// A small model on layouts of every sharding, trained by ranks that are threads, and its checkpoints.

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/testing/folder_test.h"
#include "checkpoint/rotation.h"
#include "comm/thread_ranks.h"
#include "model/initialize.h"
#include "parallel/testing/small_layouts.h"
#include "record/run_folder.h"
#include "saves/checkpointing.h"
#include "train/state_pieces.h"
#include "train/train_step.h"

namespace athanor::inline saves {

namespace fs = std::filesystem;

inline constexpr int64_t kSeqLen = 16, kVocab = 64;

inline const Degrees kOne{1, 1, 1, "ep_aware"};
inline const std::vector<Degrees> kLayouts = {
    {1, 2, 1, "none"},           {1, 4, 2, "optimizer"},          {1, 4, 2, "ep_aware"},
    {2, 2, 2, "hierarchical"},   {2, 2, 4, "hierarchical"},       {1, 3, 1, "ep_aware"},
    {1, 2, 2, "ep_aware", 2},    {1, 1, 1, "none", 4, 1},         {1, 2, 1, "optimizer", 2, 2},
    {1, 2, 2, "ep_aware", 1, 3}, {2, 1, 2, "hierarchical", 4, 2},
};

class Ranks : public FolderTest {
 protected:
  RunConfig config(const Degrees& degrees, const std::string& run, const std::string& dtype = "bfloat16") const {
    RunConfig c = small_run(degrees, kVocab, dtype);
    c.data.seq_len = kSeqLen;
    c.train.run_dir = (folder_ / run).string();
    c.train.steps = 10;
    c.optimizer.warmup_steps = 1;
    c.moe.dispatch = "all_to_all";
    c.parallelism.sequence_parallel = degrees.tensor == 2;
    c.parallelism.bucket_mb = 0.004;  // several buckets of each group
    fs::create_directories(RunFolder{c.train.run_dir}.checkpoints());
    return c;
  }

  static Batch batch(int64_t step, int64_t seq_len = kSeqLen) {
    const CounterRandom random(7, "batch");
    Batch batch{12, seq_len, std::vector<int32_t>(static_cast<size_t>(12 * seq_len)), {}, {}};
    for (size_t i = 0; i < batch.tokens.size(); ++i)
      batch.tokens[i] =
          static_cast<int32_t>(random.u64(static_cast<uint64_t>(step) * batch.tokens.size() + i) % kVocab);
    return batch;
  }

  // Runs `act` on every rank of the layout, one at a time where `act` locks.
  static void on_ranks(
      const RunConfig& config, const std::function<void(TrainState&)>& act,
      const std::function<TrainStateOptions()>& options = [] { return TrainStateOptions{}; }) {
    const auto& p = config.parallelism;
    const auto world_size = static_cast<int>(p.data_parallel_replicate_degree * p.data_parallel_shard_degree *
                                             p.tensor_parallel_degree * p.pipeline_parallel_degree);
    comm::run_ranks(world_size, [&](comm::World& world) {
      Mesh mesh(Layout(config, world_size), world);
      TrainState state(config, {}, mesh, options());
      act(state);
    });
  }

  static void train(TrainState& state, int64_t steps) {
    for (int64_t i = 0; i < steps; ++i) train_step(state, batch(state.position.step));
  }
  static void initialize(TrainState& state) { initialize_parameters(state.config.model, 1, state.model.parameters); }

  fs::path checkpoint_of(const RunConfig& config, int64_t step) const {
    return RunFolder{config.train.run_dir}.checkpoints() / step_folder_name(step);
  }

  // Every logical tensor of a checkpoint, whole.
  static std::map<std::string, Tensor> tensors_of(const fs::path& checkpoint) {
    const auto reader = CheckpointReader::open(checkpoint);
    reader.verify();
    std::map<std::string, Tensor> tensors;
    for (const auto& [name, shape] : reader.manifest().tensors) {
      Tensor whole = at::empty(shape, at::kFloat);
      reader.load({{name, whole_slice(shape), whole.data_ptr<float>()}});
      tensors.emplace(name, whole);
    }
    return tensors;
  }

  static void expect_equal(const std::map<std::string, Tensor>& a, const std::map<std::string, Tensor>& b,
                           const std::string& where) {
    ASSERT_EQ(a.size(), b.size()) << where;
    for (const auto& [name, tensor] : a) EXPECT_TRUE(at::equal(tensor, b.at(name))) << where << ": " << name;
  }
};

}  // namespace athanor::inline saves

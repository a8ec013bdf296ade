#include "train/checkpointing.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "base/random.h"
#include "checkpoint/rotation.h"
#include "checkpoint/test_folder.h"
#include "kernels/master.h"
#include "model/initialize.h"
#include "train/run_folder.h"

namespace athanor {
namespace {

namespace fs = std::filesystem;

class Checkpointing : public FolderTest {
 protected:
  RunConfig config(const std::string& dtype, const std::string& run) {
    RunConfig c;
    c.train.run_dir = (folder_ / run).string();
    c.train.dtype = dtype;
    c.model.family = "olmoe";
    c.model.hidden_size = 32;
    c.model.num_hidden_layers = 1;
    c.model.num_attention_heads = 2;
    c.model.num_key_value_heads = 2;
    c.model.intermediate_size = 16;
    c.model.num_experts = 4;
    c.model.num_experts_per_tok = 2;
    c.model.vocab_size = 1000;
    fs::create_directories(RunFolder{c.train.run_dir}.checkpoints());
    return c;
  }

  /// A model that has taken a few steps: masters whose lower bits are anything.
  std::unique_ptr<TrainState> trained(const std::string& dtype, const std::string& run) {
    auto state = std::make_unique<TrainState>(config(dtype, run), DataIdentity{});
    initialize_parameters(state->config.model, 1, state->parameters);
    const CounterRandom random(2, "gradients");
    for (int64_t step = 1; step <= 3; ++step) {
      const Tensor& grad = state->parameters.grad();
      random.fill_normal(grad.data_ptr<float>(), 0, static_cast<uint64_t>(grad.numel()), 1.0);
      state->optimizer.step(step, 1e-3, 1.0);
    }
    state->step = 3;
    return state;
  }

  static std::map<std::string, std::string> files_of(const fs::path& folder) {
    std::map<std::string, std::string> files;
    for (const auto& each : fs::directory_iterator(folder)) files[each.path().filename()] = read_file(each.path());
    return files;
  }
  fs::path checkpoint_of(const TrainState& state) {
    return RunFolder{state.config.train.run_dir}.checkpoints() / step_folder_name(state.step);
  }
};

TEST_F(Checkpointing, SavedLoadedAndSavedAgainIsTheSameToTheByte) {
  for (const std::string dtype : {"bfloat16", "float32"}) {
    const auto state = trained(dtype, dtype);
    save_checkpoint(*state);
    const fs::path first = checkpoint_of(*state);
    const auto before = files_of(first);
    TrainState loaded(state->config, {});
    load_checkpoint(loaded, CheckpointReader::open(first));
    fs::remove_all(first);
    save_checkpoint(loaded);
    for (const auto& [name, bytes] : before) EXPECT_EQ(files_of(first)[name], bytes) << dtype << " " << name;
    for (const auto& entry : state->parameters.table()) {
      EXPECT_TRUE(at::equal(loaded.parameters.weight(entry.name).value, state->parameters.weight(entry.name).value));
    }
  }
}

TEST_F(Checkpointing, TheMasterOfABf16RunIsStoredAsFp32AndRoundsToItsWeights) {
  const auto state = trained("bfloat16", "run");
  save_checkpoint(*state);
  const std::string name = "model.embed_tokens.weight";
  const BucketEntry& e = state->parameters.entry(name);
  Tensor stored = at::empty(e.extent, at::kFloat);
  CheckpointReader::open(checkpoint_of(*state))
      .load({{"master/" + name, whole_slice(e.global_shape), stored.data_ptr<float>()}});
  EXPECT_TRUE(at::equal(stored.to(at::kBFloat16), state->parameters.weight(name).value));
  EXPECT_FALSE(at::equal(stored, stored.to(at::kBFloat16).to(at::kFloat)));  // it holds more than they do
}

TEST_F(Checkpointing, AnFp32CheckpointGoesOnInBf16WithEveryMasterItCanStore) {
  const auto state = trained("float32", "wide");
  save_checkpoint(*state);
  TrainState narrow(config("bfloat16", "narrow"), {});
  load_checkpoint(narrow, CheckpointReader::open(checkpoint_of(*state)));
  for (const auto& entry : state->parameters.table()) {
    const Tensor wide = state->parameters.master_copy(entry.name), kept = narrow.parameters.master_copy(entry.name);
    for (int64_t i = 0; i < wide.numel(); ++i)
      ASSERT_EQ(kept.data_ptr<float>()[i], kernels::storable_master(wide.data_ptr<float>()[i])) << entry.name;
  }
}

}  // namespace
}  // namespace athanor

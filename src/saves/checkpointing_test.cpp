#include "saves/checkpointing.h"

#include <gtest/gtest.h>

#include "arch/inventory.h"
#include "base/error.h"
#include "base/files.h"
#include "base/random.h"
#include "base/testing/folder_test.h"
#include "checkpoint/model_identity.h"
#include "checkpoint/rotation.h"
#include "kernels/master.h"
#include "model/initialize.h"
#include "record/run_folder.h"
#include "saves/moment_ages.h"
#include "saves/progress.h"
#include "train/state_pieces.h"

namespace athanor::checkpointing_test {
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
    initialize_parameters(state->config.model, 1, state->model.parameters);
    const CounterRandom random(2, "gradients");
    for (int64_t step = 1; step <= 3; ++step) {
      const Tensor& grad = state->model.parameters.grad();
      random.fill_normal(grad.data_ptr<float>(), 0, static_cast<uint64_t>(grad.numel()), 1.0);
      state->optimizer.set.apply({step, 1e-3, 1.0}, {0, state->model.parameters.flat_size()});
    }
    state->position.step = 3;
    return state;
  }

  /// Writes the state's checkpoint, changed, into another folder; answers its path.
  fs::path write_changed(const TrainState& state, const std::function<bool(const std::string& tensor)>& keep,
                         const std::function<void(nlohmann::json& numbers)>& change = {}) {
    auto pieces = state_pieces(state);
    std::erase_if(pieces, [&](const PieceView& piece) { return !keep(piece.tensor); });
    auto numbers = state_json(state);
    if (change) change(numbers);
    const fs::path path = folder_ / "changed" / step_folder_name(state.position.step);
    fs::remove_all(path);
    fs::create_directories(path.parent_path());
    write_checkpoint(path, pieces, model_identity(state.config.model), numbers);
    return path;
  }
  static bool all(const std::string&) { return true; }
  static bool masters(const std::string& tensor) { return tensor.starts_with("master/"); }

  /// Takes a step of known gradients.
  static void update(TrainState& state) {
    CounterRandom(9, "gradients")
        .fill_normal(state.model.parameters.grad().data_ptr<float>(), 0,
                     static_cast<uint64_t>(state.model.parameters.grad().numel()), 1.0);
    state.optimizer.set.apply({state.position.step + 1, 1e-3, 1.0}, {0, state.model.parameters.flat_size()});
  }
  static void expect_equal_weights(const TrainState& a, const TrainState& b) {
    for (const auto& entry : a.model.parameters.table())
      EXPECT_TRUE(at::equal(a.model.parameters.master_copy(entry.name), b.model.parameters.master_copy(entry.name)))
          << entry.name;
  }

  static std::map<std::string, std::string> files_of(const fs::path& folder) {
    std::map<std::string, std::string> files;
    for (const auto& each : fs::directory_iterator(folder)) files[each.path().filename()] = read_file(each.path());
    return files;
  }
  static float largest_moment(const TrainState& state) {
    return state.optimizer.set.optimizers().front()->state("exp_avg").abs().max().item<float>();
  }

  fs::path checkpoint_of(const TrainState& state) {
    return RunFolder{state.config.train.run_dir}.checkpoints() / step_folder_name(state.position.step);
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
    for (const auto& entry : state->model.parameters.table()) {
      EXPECT_TRUE(at::equal(loaded.model.parameters.weight(entry.name).value,
                            state->model.parameters.weight(entry.name).value));
    }
  }
}

TEST_F(Checkpointing, TheMasterOfABf16RunIsStoredAsFp32AndRoundsToItsWeights) {
  const auto state = trained("bfloat16", "run");
  save_checkpoint(*state);
  const std::string name = "model.embed_tokens.weight";
  const BucketEntry& e = state->model.parameters.entry(name);
  Tensor stored = at::empty(e.extent, at::kFloat);
  CheckpointReader::open(checkpoint_of(*state))
      .load({{"master/" + name, whole_slice(e.global_shape), stored.data_ptr<float>()}});
  EXPECT_TRUE(at::equal(stored.to(at::kBFloat16), state->model.parameters.weight(name).value));
  EXPECT_FALSE(at::equal(stored, stored.to(at::kBFloat16).to(at::kFloat)));  // it holds more than they do
}

TEST_F(Checkpointing, AnFp32CheckpointGoesOnInBf16WithEveryMasterItCanStore) {
  const auto state = trained("float32", "wide");
  save_checkpoint(*state);
  TrainState narrow(config("bfloat16", "narrow"), {});
  load_checkpoint(narrow, CheckpointReader::open(checkpoint_of(*state)));
  for (const auto& entry : state->model.parameters.table()) {
    const Tensor wide = state->model.parameters.master_copy(entry.name),
                 kept = narrow.model.parameters.master_copy(entry.name);
    for (int64_t i = 0; i < wide.numel(); ++i)
      ASSERT_EQ(kept.data_ptr<float>()[i], kernels::storable_master(wide.data_ptr<float>()[i])) << entry.name;
  }
}

TEST_F(Checkpointing, TheFirstUpdateAfterFreshMomentsAtStep20000IsThatOfAFreshRun) {
  const auto old = trained("float32", "old");
  old->position.step = 20'000;
  const fs::path path = write_changed(*old, masters);
  TrainState fresh(config("float32", "fresh"), {}), resumed(config("float32", "resumed"), {});
  resumed.config.checkpoint.fresh_moments = true;
  load_checkpoint(resumed, CheckpointReader::open(path), Chosen::kByName);
  EXPECT_EQ(resumed.position.step, 20'000);
  for (const auto& entry : fresh.model.parameters.table()) {
    const Tensor master = old->model.parameters.master_copy(entry.name);
    fresh.model.parameters.write_master(fresh.model.parameters.entry(entry.name), 0,
                                        {master.data_ptr<float>(), static_cast<size_t>(master.numel())});
  }
  update(fresh);
  update(resumed);
  expect_equal_weights(fresh, resumed);
  for (const auto& count : updates_json(resumed)) EXPECT_EQ(count, 0);
}

TEST_F(Checkpointing, AModelOnlyFolderGoesOnWithMomentsOfNoUpdates) {
  const auto old = trained("float32", "old");
  old->position.step = 300;
  const fs::path model = save_model(*old);
  TrainState resumed(config("float32", "resumed"), {});
  load_progress(resumed, model);
  EXPECT_EQ(resumed.position.step, 300);
  EXPECT_EQ(resumed.optimizer.fresh_since.size(), make_inventory(resumed.config.model).size());
  for (const auto& [name, since] : resumed.optimizer.fresh_since) EXPECT_EQ(since, 300) << name;
}

TEST_F(Checkpointing, MomentsThatACheckpointLacksAreRefusedByNameUnlessFreshOnesAreAskedFor) {
  const auto state = trained("float32", "run");
  const auto but_one = [](const std::string& tensor) { return tensor != "exp_avg_sq/model.norm.weight"; };
  const auto load = [&](bool fresh, const fs::path& path, Chosen chosen = Chosen::kByName) {
    auto c = config("float32", "run");
    c.checkpoint.fresh_moments = fresh;
    auto loaded = std::make_unique<TrainState>(c, DataIdentity{});
    load_checkpoint(*loaded, CheckpointReader::open(path), chosen);
    return loaded;
  };
  const auto refusal = message_of<CheckpointError>([&] { load(false, write_changed(*state, but_one)); });
  EXPECT_SAYS(refusal, "lacks 1 of the optimizer's moments (exp_avg_sq/model.norm.weight)");
  EXPECT_SAYS(refusal, "checkpoint.fresh_moments = true");
  EXPECT_SAYS(message_of<CheckpointError>([&] { load(false, write_changed(*state, masters)); }), "more");
  const auto fresh = load(true, write_changed(*state, but_one));
  EXPECT_EQ(largest_moment(*fresh), 0);
  // Moments begin anew if resume names a folder, even if the run goes back to one of its own checkpoints; a run that
  // continues from its newest checkpoint keeps the moments.
  EXPECT_EQ(largest_moment(*load(true, write_changed(*state, all))), 0);
  save_checkpoint(*state);
  EXPECT_EQ(largest_moment(*load(true, checkpoint_of(*state))), 0);
  const auto own = load(true, checkpoint_of(*state), Chosen::kAsNewest);
  EXPECT_GT(largest_moment(*own), 0);
  EXPECT_TRUE(own->optimizer.fresh_since.empty());
  // An imported run has taken no step and has none.
  state->position.step = 0;
  EXPECT_EQ(load(false, write_changed(*state, masters))->position.step, 0);
}

TEST_F(Checkpointing, UpdatesOfEachParameterAreKeptAndOlderCheckpointsHaveHadAll) {
  const auto state = trained("bfloat16", "run");
  state->optimizer.set_fresh_since({{"model.norm.weight", 2}});
  const fs::path path = write_changed(*state, all);
  TrainState loaded(state->config, {});
  load_checkpoint(loaded, CheckpointReader::open(path));
  EXPECT_EQ(loaded.optimizer.fresh_since, state->optimizer.fresh_since);
  update(*state);
  update(loaded);
  expect_equal_weights(*state, loaded);
  TrainState older(state->config, {});
  load_checkpoint(older, CheckpointReader::open(write_changed(
                             *state, all, [](auto& numbers) { ASSERT_EQ(numbers.erase("optimizer_updates"), 1u); })));
  EXPECT_TRUE(older.optimizer.fresh_since.empty());
  for (const nlohmann::json& wrong : {nlohmann::json(4), nlohmann::json(-1), nlohmann::json("3"), nlohmann::json()}) {
    const fs::path changed =
        write_changed(*state, all, [&](auto& numbers) { numbers["optimizer_updates"]["model.norm.weight"] = wrong; });
    EXPECT_SAYS(message_of<CheckpointError>([&] { load_checkpoint(older, CheckpointReader::open(changed)); }),
                "the updates of model.norm.weight are");
  }
}

class ProgressTest : public Checkpointing {
 protected:
  static constexpr const char* kHash = "0123";

  void SetUp() override {
    Checkpointing::SetUp();
    state_ = std::make_unique<TrainState>(config("float32", "run"), DataIdentity{"tokenizer", 7});
    state_->position.step = 40;
    state_->position.tokens_seen = 5120;
    state_->position.ledger.sources[kHash] = {"web", 100, 32, {1, 60}, 160, {}};
    state_->position.ledger.mix[kHash] = {int64_t{1} << 50, 160};
    right_ = progress_json(*state_);
  }
  nlohmann::json changed(const std::string& place, const nlohmann::json& value) const {
    auto progress = right_;
    progress[nlohmann::json::json_pointer(place)] = value;
    return progress;
  }
  std::string refusal(const nlohmann::json& progress) {
    return message_of<CheckpointError>([&] { apply_progress(*state_, progress, folder_ / "step-00000040"); });
  }

  std::unique_ptr<TrainState> state_;
  nlohmann::json right_;
};

TEST_F(ProgressTest, IsReadBackAsItWasWritten) {
  TrainState read(state_->config, state_->data);
  for (const char* name : {"step-00000040", "renamed"}) {
    apply_progress(read, right_, folder_ / name);
    EXPECT_EQ(read.position.step, 40);
    EXPECT_EQ(read.position.tokens_seen, 5120);
    EXPECT_EQ(read.position.ledger, state_->position.ledger);
  }
}

TEST_F(ProgressTest, ARunThatDoesNotNameItsOrderBeganInTheOldOne) {
  TrainState read(state_->config, state_->data);
  auto old = right_;
  ASSERT_EQ(old["data"].erase("order"), 1u);
  apply_progress(read, old, folder_ / "step-00000040");
  EXPECT_EQ(read.position.ledger.order, DataOrder::kShuffledRows);
  apply_progress(read, progress_json(read), folder_ / "step-00000040");
  EXPECT_EQ(read.position.ledger.order, DataOrder::kShuffledRows) << "and keeps it in later checkpoints";
  EXPECT_SAYS(refusal(changed("/data/order", "spiral")), "data.order is \"spiral\"");
}

TEST_F(ProgressTest, NumbersThatNoRunHasAreRefusedByName) {
  const int64_t huge = int64_t{1} << 62;
  for (const nlohmann::json& step : {nlohmann::json(-4), nlohmann::json(huge), nlohmann::json(4.5), nlohmann::json()})
    EXPECT_SAYS(refusal(changed("/step", step)), "step is");
  EXPECT_SAYS(refusal(changed("/step", 41)), "its name has 40");
  EXPECT_SAYS(refusal(changed("/tokens_seen", -1)), "tokens_seen is -1");
  EXPECT_SAYS(refusal(changed("/eos_id", 8)), "end with token 8");
  EXPECT_SAYS(refusal(changed("/text_template", {{"before", {1}}, {"after", nlohmann::json::array()}})),
              "prepare them again with --add-special-tokens");
  EXPECT_SAYS(refusal(changed("/text_template", {{"before", -1}})), "is no template");
  const std::string source = std::string("/data/sources/") + kHash, mix = std::string("/data/mix/") + kHash;
  for (const auto& [key, value] : std::vector<std::pair<std::string, nlohmann::json>>{{"drawn", -160},
                                                                                      {"drawn", 60.5},
                                                                                      {"epoch", huge},
                                                                                      {"epoch", 0},
                                                                                      {"next", 100},
                                                                                      {"instances", 0},
                                                                                      {"seq_len", huge},
                                                                                      {"grown_from", {50, 40}},
                                                                                      {"grown_from", {1.5}}}) {
    EXPECT_SAYS(refusal(changed(source + "/" + key, value)), kHash) << key;
  }
  EXPECT_SAYS(refusal(changed(mix + "/weight", 0)), "weight is 0");
  EXPECT_SAYS(refusal(changed(mix + "/drawn", 161)), "drawn is 161");
  EXPECT_SAYS(refusal(changed("/data/mix/4567", {{"weight", 1}, {"drawn", 0}})), "not among those");
  EXPECT_SAYS(refusal(changed("/data", {{"sources", nlohmann::json::object()}, {"mix", nlohmann::json::object()}})),
              "names no data");
  EXPECT_SAYS(refusal(nlohmann::json::array()), "step is missing");
}

TEST_F(ProgressTest, AModelOfThisRunThatDoesNotSayHowFarItCameIsRefused) {
  const fs::path own = save_model(*state_), elsewhere = folder_ / "elsewhere" / own.filename();
  fs::remove(own / "athanor.json");
  EXPECT_SAYS(message_of<CheckpointError>([&] { load_progress(*state_, own); }), "lacks athanor.json");
  fs::create_directories(elsewhere.parent_path());
  fs::rename(own, elsewhere);
  TrainState other(state_->config, state_->data);
  load_progress(other, elsewhere);
  EXPECT_EQ(other.position.step, 0);
}

}  // namespace
}  // namespace athanor::checkpointing_test

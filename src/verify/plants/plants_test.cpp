#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <tuple>

#include "base/error.h"
#include "comm/backend_decorator.h"
#include "comm/thread_ranks.h"
#include "model/initialize.h"
#include "train/testing/steps.h"
#include "train/train_step.h"
#include "verify/plants/names.h"
#include "verify/plants/plant.h"
#include "verify/plants/rows.h"
#include "verify/plants/stage_decorator.h"
#include "verify/small_model.h"

namespace athanor::inline verify::plants::plants_test {
namespace {

constexpr int64_t kMicrobatches = 2, kLayers = 2;

struct Degrees {
  int data = 1, expert = 1, tensor = 1, pipeline = 1;
  bool sequence = false;
  int ranks() const { return data * tensor * pipeline; }
};

RunConfig config_of(const Degrees& d, const std::string& dtype = "float32") {
  RunConfig c;
  c.model.family = "olmoe";
  c.model.hidden_size = 32;
  c.model.num_hidden_layers = kLayers;
  c.model.num_attention_heads = 4;
  c.model.intermediate_size = 16;
  c.model.num_experts = 4;
  c.model.num_experts_per_tok = 2;
  c.model.vocab_size = 64;
  c.model.tie_word_embeddings = d.pipeline > 1;
  c.data.seq_len = 8;
  c.train.dtype = dtype;
  c.train.micro_batch_size = 1;
  c.train.global_batch_size = kMicrobatches * d.data;
  c.train.steps = 10;
  c.optimizer.warmup_steps = 1;
  c.moe.dispatch = "all_to_all";
  c.moe.router_z_loss_coef = 0.01;
  c.parallelism.data_parallel_shard_degree = d.data;
  c.parallelism.expert_parallel_degree = d.expert;
  c.parallelism.tensor_parallel_degree = d.tensor;
  c.parallelism.pipeline_parallel_degree = d.pipeline;
  c.parallelism.sequence_parallel = d.sequence;
  c.parallelism.bucket_mb = 0.01;
  return c;
}

struct Result {
  StepReport report;           // report of rank 0
  std::vector<Tensor> grads;   // by rank
  std::vector<int64_t> times;  // how often the plant acted, by rank
};

using MakePlant = std::function<std::unique_ptr<Plant>()>;

// Returns one step's gradients over the ranks, after `updates` steps, with the plant that `make` returns.
Result run(const RunConfig& config, const Degrees& d, const MakePlant& make, int64_t updates = 0) {
  Result result;
  result.grads.resize(static_cast<size_t>(d.ranks()));
  result.times.resize(static_cast<size_t>(d.ranks()));
  comm::run_ranks(d.ranks(), [&](comm::World& world) {
    const auto rank = static_cast<size_t>(world.rank());
    const std::unique_ptr<Plant> plant = make();
    const auto planted = plant ? planted_world(world, *plant) : nullptr;
    Mesh mesh(Layout(config, d.ranks()), planted ? *planted : world);
    TrainState state(config, {}, mesh, plant ? planted_options(*plant) : TrainStateOptions{});
    if (plant) plant->watch(state);
    initialize_parameters(config.model, 1, state.model.parameters);
    for (int64_t step = 1; step <= updates; ++step) train_step(state, make_verify_batch(config, step, 1));
    const StepReport report = compute_gradients(state, make_verify_batch(config, updates + 1, 1));
    result.grads[rank] = state.model.parameters.grad().clone();
    result.times[rank] = plant ? plant->times() : 0;
    if (rank == 0) result.report = report;
  });
  return result;
}
Result run(const Degrees& d, const std::string& name) {
  return run(config_of(d), d, [&] { return name.empty() ? nullptr : make_plant(name); });
}
// With the optimizer that a plant needs, and after updates that a wrong one shows in, if it needs one.
Result run_for(const PlantName& plant, const Degrees& d, bool planted) {
  RunConfig config = config_of(d);
  if (!plant.optimizer.empty()) config.optimizer.name = plant.optimizer;
  // Steps are not clipped, so that Hessians change them.
  if (plant.optimizer == "sophiag") config.optimizer.hessian_interval = 1, config.optimizer.rho = 1e4;
  return run(
      config, d, [&] { return planted ? make_plant(std::string(plant.name)) : nullptr; },
      plant.optimizer.empty() ? 0 : 2);
}

bool same_gradients(const Result& a, const Result& b) {
  for (size_t r = 0; r < a.grads.size(); ++r) {
    if (!at::equal(a.grads[r], b.grads[r])) return false;
  }
  return true;
}

int64_t total(const Result& result) {
  int64_t sum = 0;
  for (const int64_t times : result.times) sum += times;
  return sum;
}

TEST(Plants, EachNameMakesAPlantAndSaysWhatItDoesAndNeeds) {
  std::string_view last;
  std::set<std::string_view> named, made;
  for (const PlantName& plant : kPlantNames) {
    EXPECT_LT(last, plant.name) << "in order";
    last = plant.name;
    EXPECT_FALSE(plant.does.empty() || plant.needs.empty()) << plant.name;
    EXPECT_NE(make_plant(std::string(plant.name)), nullptr);
    named.insert(plant.name);
  }
  for (const Row& row : all_plants()) made.insert(row.name);
  EXPECT_EQ(named, made);
  EXPECT_THROW(make_plant("grad.wrong"), ConfigError);
}

// Decorators around every stage and every group's backend, which change nothing.
class Nothing : public Plant {
 public:
  Backend wrap_group(const comm::GroupOptions&, Backend backend) override {
    return c10::make_intrusive<comm::BackendDecorator>(std::move(backend));
  }
  std::unique_ptr<Stage> wrap_stage(Stage& stage, const StageLayers&, const Mesh&) override {
    count(true);
    return std::make_unique<StageDecorator>(stage);
  }
};

TEST(Plants, DecoratorsAloneChangeNoBits) {
  for (const Degrees& d : {Degrees{.data = 2, .expert = 2}, Degrees{.tensor = 2, .pipeline = 2, .sequence = true}}) {
    const RunConfig config = config_of(d);
    const Result plain = run(d, ""), decorated = run(config, d, [] { return std::make_unique<Nothing>(); });
    EXPECT_TRUE(same_gradients(plain, decorated));
    EXPECT_EQ(plain.report.grad_norm, decorated.report.grad_norm);
    EXPECT_EQ(plain.report.parts.loss_sum, decorated.report.parts.loss_sum);
    EXPECT_EQ(total(decorated), d.ranks());
  }
}

TEST(Plants, EachActsInALayoutThatHasWhatItNeedsAndChangesWhatItSays) {
  const Degrees pair{.data = 2}, data{.data = 4, .expert = 2}, tensor{.tensor = 2}, stages{.pipeline = 2},
      sequence{.tensor = 2, .sequence = true};
  std::map<std::pair<const Degrees*, std::string_view>, Result> plains;  // by layout and optimizer
  for (const PlantName& plant : kPlantNames) {
    const std::string_view name = plant.name;
    const Degrees& degrees = name.starts_with("tensor") || name.ends_with("tensor_ranks") ? tensor
                             : name.starts_with("pipeline")                               ? stages
                             : name.starts_with("sequence")                               ? sequence
                             : plant.needs.find("two data ranks") != plant.needs.npos     ? pair
                                                                                          : data;
    const auto [found, is_new] = plains.try_emplace({&degrees, plant.optimizer});
    if (is_new) found->second = run_for(plant, degrees, false);
    const Result &plain = found->second, planted = run_for(plant, degrees, true);
    EXPECT_GT(total(planted), 0) << name;
    const bool counts_alone = name == "router.count_twice" || name == "loss.divided_twice" || name == "norm.one_shard";
    EXPECT_EQ(same_gradients(plain, planted), counts_alone) << name;
    EXPECT_EQ(at::equal(plain.report.parts.routers.chosen * 2, planted.report.parts.routers.chosen),
              name == "router.count_twice")
        << name;
    if (name == "loss.divided_twice") {
      EXPECT_NEAR(planted.report.parts.loss_sum * degrees.data, plain.report.parts.loss_sum, 1e-9);
    }
    if (name == "norm.one_shard") {
      EXPECT_NEAR(planted.report.grad_norm, plain.report.rank_norms.ranks[0], 1e-12);
    }
  }
}

TEST(Plants, AttentionsSumsAreFoundAmongAllOfATensorGroup) {
  for (const Degrees& d :
       {Degrees{.tensor = 2}, Degrees{.tensor = 2, .sequence = true}, Degrees{.tensor = 2, .pipeline = 2},
        Degrees{.tensor = 2, .pipeline = 2, .sequence = true}}) {
    for (const char* name : {"tensor.doubled_all_reduce", "tensor.missing_all_reduce"})
      EXPECT_EQ(total(run(d, name)), kMicrobatches * kLayers * d.tensor) << name;
  }
}

TEST(Plants, ALayoutThatHasNothingForAPlantIsLeftAlone) {
  const Degrees one;
  const Result without_updates = run(one, "");
  for (const PlantName& plant : kPlantNames) {
    if (plant.name == "router.count_twice") continue;
    const Result plain = plant.optimizer.empty() ? without_updates : run_for(plant, one, false),
                 planted = run_for(plant, one, true);
    EXPECT_EQ(total(planted), 0) << plant.name;
    EXPECT_TRUE(same_gradients(plain, planted)) << plant.name;
  }
}

TEST(Plants, AFaultOfAnOptimizerIsNotInARunOfAnother) {
  const Degrees data{.data = 3};  // all that these faults need apart from their optimizers
  for (const PlantName& plant : kPlantNames) {
    if (plant.optimizer.empty()) continue;
    const Result planted = run(
        config_of(data), data, [&] { return make_plant(std::string(plant.name)); }, /*updates=*/2);
    EXPECT_EQ(total(planted), 0) << plant.name;
  }
}

// Their exchanges are in another group. Of two tensor ranks a home receives the part of one, which nothing can be
// crossed with.
TEST(Plants, MuonsExchangesAreFoundAmongTensorRanksToo) {
  for (const auto& [name, tensor, acts] : {std::tuple{"muon.stale_home", 2, true}, {"muon.crossed_parts", 2, false}}) {
    const Degrees d{.tensor = tensor};
    RunConfig config = config_of(d);
    config.optimizer.name = "muon";
    const Result plain = run(
                     config, d, [] { return nullptr; }, 2),
                 planted = run(
                     config, d, [&] { return make_plant(name); }, 2);
    EXPECT_EQ(total(planted) > 0, acts) << name;
    EXPECT_EQ(same_gradients(plain, planted), !acts) << name;
  }
}

// 4 of 8 significant bits stay: 1.0010|1000 is halfway between two values, and so is 1.0011|1000; both go to the even
// one.
TEST(Plants, InBfloat16TheWrongTypeHasFourSignificantBitsAndRoundsToNearest) {
  const RunConfig config = config_of({});
  TrainState state(config, {});
  const auto plant = make_plant("pipeline.wrong_dtype");
  plant->watch(state);
  const auto sent = [&](std::vector<float> values, at::ScalarType type, Observation::Phase phase) {
    const Tensor x = at::tensor(values).to(type);
    state.observers.tell({"pipeline.to_stage.1", phase, 0, x});
    return x.to(at::kFloat);
  };
  using Phase = Observation::Phase;
  const std::vector<float> values = {1.0F, -1.0F, 1.0625F, 1.1875F, -1.1875F, 1.9921875F, 0.F, 1.0703125F};
  EXPECT_TRUE(at::equal(sent(values, at::kBFloat16, Phase::kForward),
                        at::tensor({1.0F, -1.0F, 1.0F, 1.25F, -1.25F, 2.0F, 0.F, 1.125F})));
  EXPECT_TRUE(at::equal(sent(values, at::kBFloat16, Phase::kBackward), at::tensor(values))) << "gradients stay";
  EXPECT_TRUE(at::equal(sent({1.00390625F, 1.001F}, at::kFloat, Phase::kForward), at::tensor({1.0F, 1.0F})));
}

TEST(Plants, NoRoomThatTrainsKnowsOfFaultsInNumerics) {
  const char* root = std::getenv("ATHANOR_SOURCE_DIR");
  if (!root) GTEST_SKIP() << "ATHANOR_SOURCE_DIR is not set";
  int files = 0;
  for (const char* room : {"ops", "kernels", "model", "moe", "parallel", "optim", "comm"}) {
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(std::filesystem::path(root) / "src" / room)) {
      const auto ending = entry.path().extension();
      if (ending != ".h" && ending != ".cpp" && ending != ".cu" && ending != ".cuh") continue;
      std::ifstream in(entry.path());
      std::stringstream text;
      text << in.rdbuf();
      EXPECT_EQ(text.str().find("plant"), std::string::npos) << entry.path();
      ++files;
    }
  }
  EXPECT_GT(files, 100);
}

}  // namespace
}  // namespace athanor::inline verify::plants::plants_test

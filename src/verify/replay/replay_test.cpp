// Replays of whole runs of one rank, whose layouts are in tests/mpi/test_verify.py: right runs are within the bounds of
// their optimizers, and what an optimizer does otherwise is not.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/testing/folder_test.h"
#include "verify/own_gradients.h"
#include "verify/parts.h"
#include "verify/replay/replay.h"
#include "verify/replay/rounded_iteration.h"
#include "verify/small_model.h"
#include "verify/testing/traced_model.h"
#include "verify/traced_run.h"

namespace athanor::replay_test {
namespace {

namespace fs = std::filesystem;

RunConfig config_of(const std::string& optimizer, const std::string& dtype = "float32", int64_t steps = 3) {
  RunConfig c = traced_model(4);
  if (optimizer == "muon") c.model.num_experts = 3;  // each matrix takes long to replay
  c.optimizer.name = optimizer;
  // Rates for which a step is not small compared with a weight's rounding, and a rho that clips only some elements.
  c.optimizer.lr = optimizer == "sgd" ? 0.5 : optimizer == "lamb" ? 0.05 : 2e-3;
  if (optimizer == "sophiag") c.optimizer.hessian_interval = 2, c.optimizer.rho = 20;
  return make_small_run(c, 1, {.steps = steps, .dtype = dtype, .keep_size = true});
}

class ReplayTest : public FolderTest {
 protected:
  ReplayTest() { at::set_num_threads(1); }
  ~ReplayTest() override { at::set_num_threads(threads_); }

  WholeTrace run(const RunConfig& config) {
    const fs::path folder = folder_ / "run";
    fs::create_directories(folder);
    trace_run(config, 1, nullptr).write(folder / WholeTrace::file_name(0));
    return WholeTrace::read(folder, 1);
  }
  // The comparisons of parameters of a run with what `right` makes of its gradients.
  std::vector<Comparison> updates_of(const RunConfig& given, const RunConfig& right) {
    std::vector<Comparison> all = compare_with_own_gradients(right, run(given));
    std::erase_if(all, [](const Comparison& c) { return c.quantity != kParametersQuantity; });
    return all;
  }
  static double largest_share(const std::vector<Comparison>& all) {
    return std::ranges::max_element(all, {}, [](const Comparison& c) { return c.share(); })->share();
  }
  const int threads_ = at::get_num_threads();
};

TEST_F(ReplayTest, UpdatesOfARightRunAreWithinTheBoundsOfEachOptimizer) {
  for (const char* name : {"adamw", "sgd", "lamb", "sophiag", "muon"}) {
    for (const char* dtype : {"float32", "bfloat16"}) {
      const RunConfig config = config_of(name, dtype);
      const auto all = updates_of(config, config);
      int64_t parts = 0;
      for (const auto& spec : make_inventory(config.model))
        for_parts(spec, [&](const auto&, int64_t, int64_t) { ++parts; });
      EXPECT_EQ(std::ssize(all), parts * config.train.steps) << name;
      for (const Comparison& c : all)
        EXPECT_LE(c.share(), 0.6) << name << " in " << dtype << ": " << c.name << " in step " << c.step;
    }
  }
}

TEST_F(ReplayTest, SettingsOfAnOptimizerChangeWhatItsReplayDoes) {
  using Settings = OptimizerConfig;
  const std::vector<std::pair<const char*, std::function<void(Settings&)>>> wrongs = {
      {"sgd", [](Settings& o) { o.momentum = 0.94; }},
      {"sgd", [](Settings& o) { o.nesterov = false; }},
      {"sgd", [](Settings& o) { o.weight_decay *= 1.01; }},
      {"lamb", [](Settings& o) { o.betas[0] -= 0.01; }},
      {"lamb", [](Settings& o) { o.betas[1] -= 0.01; }},
      {"lamb", [](Settings& o) { o.weight_decay *= 1.1; }},
      {"sophiag", [](Settings& o) { o.rho *= 1.01; }},
      {"sophiag", [](Settings& o) { o.betas[0] -= 0.001; }},
      {"muon", [](Settings& o) { o.momentum = 0.5; }},
      {"muon", [](Settings& o) { o.newton_schulz_steps = 4; }},
      {"muon", [](Settings& o) { o.newton_schulz_coefficients[2] -= 0.2; }},
  };
  for (size_t i = 0; i < wrongs.size(); ++i) {
    RunConfig wrong = config_of(wrongs[i].first);
    wrongs[i].second(wrong.optimizer);
    EXPECT_GT(largest_share(updates_of(wrong, config_of(wrongs[i].first))), 1.5) << wrongs[i].first << " " << i;
  }
}

TEST_F(ReplayTest, HessiansAreThoseOfTheSecondBackwardsAndOtherSettingsGiveOthers) {
  const auto hessians = [&](const RunConfig& given, const RunConfig& right) {
    std::vector<Comparison> all = compare_with_own_gradients(right, run(given));
    std::erase_if(all, [](const Comparison& c) { return c.quantity != kHessianQuantity; });
    return all;
  };
  for (const char* dtype : {"float32", "bfloat16"}) {
    const RunConfig config = config_of("sophiag", dtype);
    const auto all = hessians(config, config);
    EXPECT_EQ(all.size(), updates_of(config, config).size());
    EXPECT_LE(largest_share(all), 0.6) << dtype;
    for (const auto& wrong : std::vector<std::function<void(RunConfig&)>>{
             [](RunConfig& c) { c.optimizer.betas[1] -= 1e-5; },
             [](RunConfig& c) { c.optimizer.hessian_interval = 1; },
             [](RunConfig& c) { c.train.global_batch_size = 11; },
         }) {
      RunConfig other = config;
      wrong(other);
      EXPECT_GT(largest_share(hessians(config, other)), 1.5) << dtype;
    }
  }
}

TEST_F(ReplayTest, MuonsProductsInFloat32AreReplayedTwoHundredTimesAsSharply) {
  const auto bounds = [&](const char* dtype) {
    RunConfig config = config_of("muon", "float32", /*steps=*/2);
    config.optimizer.newton_schulz_dtype = dtype;
    config.optimizer.lr = 0.1;  // so that the bound is that of the step, and not of the weight's rounding
    config.optimizer.weight_decay = 0;
    std::vector<double> found;
    for (const Comparison& c : updates_of(config, config)) {
      EXPECT_LE(c.share(), 0.6) << c.name << " in step " << c.step;
      if (c.step == 1 && c.name.find("proj.weight") != c.name.npos) found.push_back(c.bound);
    }
    RunConfig other = config;  // 24 x 20: 1.095 instead of 0.980
    other.optimizer.muon_scale = "keller_jordan";
    EXPECT_GT(largest_share(updates_of(other, config)), dtype == std::string("float32") ? 100 : 1);
    return found;
  };
  const auto wide = bounds("bfloat16"), tight = bounds("float32");
  ASSERT_EQ(wide.size(), tight.size());
  for (size_t i = 0; i < wide.size(); ++i) EXPECT_GT(wide[i], 200 * tight[i]);
}

TEST_F(ReplayTest, GroupsWithOtherOptimizersAreReplayedByTheirs) {
  RunConfig config = config_of("muon");
  config.optimizer.groups = {{.match = {"expert_down"}, .name = "sgd", .lr = 1e-3, .weight_decay = 0.3},
                             {.match = {"*.1.*norm.weight"}, .name = "lamb"},
                             {.match = {"query"}, .name = "", .weight_decay = 0.5}};
  EXPECT_LE(largest_share(updates_of(config, config)), 0.6);
  RunConfig other = config;
  other.optimizer.groups[0].name = "lamb";
  std::set<std::string> wrong;
  for (const Comparison& c : updates_of(other, config))
    if (c.share() > 1) wrong.insert(c.name.substr(0, c.name.find('[')));
  EXPECT_EQ(wrong, (std::set<std::string>{"model.layers.0.mlp.experts.down_proj.weight",
                                          "model.layers.1.mlp.experts.down_proj.weight"}));
}

// What QK-clip multiplies queries and keys by is not recorded.
TEST_F(ReplayTest, QueriesAndKeysThatMayBeClippedAreNotReplayed) {
  RunConfig config = config_of("sgd");
  config.model.family = "llama";
  config.model.num_experts = config.model.num_experts_per_tok = 0;
  config.optimizer.qk_clip = 1e-3;
  const auto all = updates_of(config, config);
  EXPECT_LE(largest_share(all), 0.6);
  EXPECT_TRUE(std::ranges::none_of(all, [](const Comparison& c) {
    return c.name.find("q_proj") != c.name.npos || c.name.find("k_proj") != c.name.npos;
  }));
}

// The singular vectors stay and the singular values are moved by the polynomial, of a matrix that has few bits.
TEST(RoundedIteration, OfADiagonalMatrixItIsThePolynomialOfItsElements) {
  OptimizerConfig config;
  config.newton_schulz_dtype = "float32";
  config.newton_schulz_steps = 2;
  const Matrices matrices{1, 3, 2, {3, 0, 0, 4, 0, 0}, std::vector<double>(6)};
  const RoundedResult result = orthogonalize_rounded(matrices, config);
  const auto polynomial = [&](double s) {
    for (int i = 0; i < 2; ++i) s = 3.4445 * s - 4.7750 * s * s * s + 2.0315 * s * s * s * s * s;
    return s;
  };
  EXPECT_NEAR(result.values[0], polynomial(0.6), 1e-5);
  EXPECT_NEAR(result.values[3], polynomial(0.8), 1e-5);
  EXPECT_EQ(result.values[1], 0);
  EXPECT_GT(result.deviations[0], 0x1p-26);
  EXPECT_LT(result.deviations[0], 1e-5);
}

}  // namespace
}  // namespace athanor::replay_test

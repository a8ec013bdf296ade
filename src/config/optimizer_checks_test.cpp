// Settings of [optimizer] that contradict each other, and files that are read for several optimizers.

#include "config/optimizer_checks.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "config/testing/error_of.h"

namespace athanor::optimizer_checks_test {
namespace {

constexpr const char* kDense = "[model]\nfamily = \"llama\"\n";

void expect_refused(const std::vector<std::string>& overrides, const std::string& part) {
  const std::string error = error_of(kDense, overrides);
  EXPECT_NE(error.find(part), std::string::npos) << error;
  EXPECT_EQ(std::ranges::count(error, '\n'), 0) << error;
}

RunConfig read_for(const std::string& name, const std::vector<std::string>& swept,
                   std::vector<std::string> overrides = {}) {
  overrides.push_back("optimizer.name=" + name);
  return parse_run_config(kDense, "run.toml", overrides, {}, swept);
}

TEST(OptimizerChecks, AnOptionOfSomeSweptOptimizersHasItsDefaultForTheOthers) {
  const std::vector<std::string> swept{"adamw", "muon"},
      options{"optimizer.muon_scale=keller_jordan", "optimizer.momentum=0.5", "optimizer.eps=1e-6"};
  const OptimizerConfig adamw = read_for("adamw", swept, options).optimizer,
                        muon = read_for("muon", swept, options).optimizer;
  EXPECT_EQ(muon.muon_scale, MuonScale::kKellerJordan);
  EXPECT_EQ(muon.momentum, 0.5);
  EXPECT_EQ(adamw.muon_scale, OptimizerConfig{}.muon_scale);
  EXPECT_EQ(adamw.momentum, OptimizerConfig{}.momentum);
  EXPECT_EQ(adamw.eps, 1e-6);
  EXPECT_EQ(muon.eps, 1e-6) << "AdamW updates the rest of Muon";
}

TEST(OptimizerChecks, AnOptionThatNoSweptOptimizerHasIsRefused) {
  for (const char* name : {"adamw", "muon"}) {
    try {
      read_for(name, {"adamw", "muon"}, {"optimizer.rho=0.1", "optimizer.muon_scale=keller_jordan"});
      ADD_FAILURE() << name;
    } catch (const ConfigError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("optimizer.rho is an option of sophiag"), std::string::npos) << text;
      EXPECT_EQ(text.find("muon_scale"), std::string::npos) << text;
    }
  }
  expect_refused({"optimizer.muon_scale=keller_jordan"}, "optimizer.muon_scale is an option of muon");
}

TEST(OptimizerChecks, AnOptionOfAGroupsOptimizerStaysInEverySweep) {
  const std::vector<std::string> with_group{"optimizer.groups=[{match = [\"norm\"], name = \"sgd\"}]",
                                            "optimizer.momentum=0.5"};
  EXPECT_EQ(read_for("adamw", {"adamw", "muon"}, with_group).optimizer.momentum, 0.5);
}

TEST(OptimizerChecks, DecayThatChangesTheSignOfWeightsIsRefused) {
  expect_refused({"optimizer.lr=10"}, "optimizer.lr (10) · optimizer.weight_decay (0.1) is 1: an update");
  EXPECT_EQ(error_of(kDense, {"optimizer.lr=9.99"}), "");
  EXPECT_EQ(error_of(kDense, {"optimizer.lr=1e30", "optimizer.weight_decay=0"}), "");
  EXPECT_EQ(error_of(kDense, {"optimizer.lr=10", "optimizer.name=lamb"}), "");
}

TEST(OptimizerChecks, DecayOfGroupsIsThatOfTheirOwnRateAndOptimizer) {
  const auto group = [](const std::string& what) { return "optimizer.groups=[{match = [\"norm\"], " + what + "}]"; };
  expect_refused({"optimizer.lr=2", group("lr = 20")},
                 "optimizer.groups[0].lr (20) · optimizer.weight_decay (0.1) is 2");
  expect_refused({"optimizer.lr=2", group("weight_decay = 0.5")},
                 "optimizer.lr (2) · optimizer.groups[0].weight_decay (0.5) is 1");
  EXPECT_EQ(error_of(kDense, {"optimizer.lr=2", group("lr = 20, weight_decay = 0")}), "");
  EXPECT_EQ(error_of(kDense, {"optimizer.lr=2", group("lr = 20, name = \"lamb\"")}), "");
  expect_refused({"optimizer.lr=20", "optimizer.name=lamb", group("name = \"sgd\"")},
                 "optimizer.groups[0] (sgd) has optimizer.lr (20) · optimizer.weight_decay (0.1) is 2");
  expect_refused({"optimizer.lr=20", group("name = \"sgd\"")}, "optimizer.lr (20) ·");  // the same numbers: one line
}

TEST(OptimizerChecks, ARateIsNotRefusedIfNoParameterNeedHaveTheDecay) {
  const std::string norms = "optimizer.no_weight_decay=[\"*norm*\"]";
  const auto group = [](const std::string& what) { return "optimizer.groups=[{match = [\"norm\"], " + what + "}]"; };
  EXPECT_EQ(error_of(kDense, {"optimizer.lr=2", norms, group("lr = 20")}), "");
  EXPECT_EQ(error_of(kDense, {"optimizer.lr=20", "optimizer.no_weight_decay=[\"*\"]"}), "");
  expect_refused({"optimizer.lr=2", norms, group("weight_decay = 0.5")}, "optimizer.groups[0].weight_decay (0.5) is 1");
  expect_refused({"optimizer.lr=20", norms}, "optimizer.lr (20) ·");
  for (const char* of_all : {"weight_decay = 0", "name = \"lamb\""})
    EXPECT_EQ(error_of(kDense, {"optimizer.lr=20", fmt::format("optimizer.groups=[{{match = [\"*\"], {}}}]", of_all)}),
              "");
}

TEST(OptimizerChecks, DecayIsThatOfEachPhasesHighestRate) {
  expect_refused({"optimizer.lr=1", "train.stages=[{steps = 50}, {steps = 50, lr = 10}]"},
                 "stage 2: optimizer.lr (10) · optimizer.weight_decay (0.1) is 1:");
  expect_refused({"optimizer.lr=1", "optimizer.weight_decay=0.01",
                  "optimizer.groups=[{match = [\"norm\"], lr = 2, weight_decay = 0.25}]",
                  "train.stages=[{steps = 50}, {steps = 50, lr = 2}]"},
                 "stage 2: optimizer.groups[0].lr (4) · optimizer.groups[0].weight_decay (0.25) is 1:");
}

TEST(OptimizerChecks, CoefficientsThatMakeNoUpdateAreRefused) {
  expect_refused({"optimizer.name=muon", "optimizer.newton_schulz_coefficients=[0, 0, 0]"}, "not all 0");
  EXPECT_EQ(error_of(kDense, {"optimizer.name=muon", "optimizer.newton_schulz_coefficients=[1.5, -0.5, 0]"}), "");
}

TEST(OptimizerChecks, ABaseWidthThatNothingUsesIsRefused) {
  expect_refused({"optimizer.base_width=64"}, "optimizer.base_width (64) is used by optimizer.scaling \"mup\" alone");
  EXPECT_EQ(error_of(kDense, {"optimizer.base_width=64", "optimizer.scaling=mup"}), "");
  expect_refused({"model.family=gemma2", "optimizer.base_width=64", "optimizer.scaling=mup"},
                 "norms and latents of family gemma2 follow the width is not known");
}

TEST(OptimizerChecks, TheLimitOfMomentumIsTold) {
  expect_refused({"optimizer.name=sgd", "optimizer.momentum=1"},
                 "optimizer.momentum: expected a number from 0 to below 1 (at most 0.9999999,");
  EXPECT_EQ(error_of(kDense, {"optimizer.name=sgd", "optimizer.momentum=0.9999999"}), "");
}

}  // namespace
}  // namespace athanor::optimizer_checks_test

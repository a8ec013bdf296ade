#include "layout/optimizer_lines.h"

#include <gtest/gtest.h>

namespace athanor::optimizer_lines_test {
namespace {

// Two layers: of each kind of matrix two tensors; two norms in each layer and one at the end.
RunConfig small_dense(const std::string& optimizer) {
  RunConfig config;
  config.model.family = "llama";
  config.model.hidden_size = 8;
  config.model.num_hidden_layers = 2;
  config.model.num_attention_heads = config.model.num_key_value_heads = 2;
  config.model.intermediate_size = 16;
  config.model.vocab_size = 10;
  config.model.num_experts = config.model.num_experts_per_tok = 0;
  config.model.tie_word_embeddings = false;
  config.optimizer.name = optimizer;
  config.optimizer.lr = 1e-3;
  config.optimizer.weight_decay = 0.1;
  return config;
}

// A layer has four matrices of 8 x 8 and three of 8 x 16; embedding and output have 10 x 8, and five norms 8 elements.
TEST(OptimizerLines, OfMuonNameTheMatricesAndWhatAdamWUpdates) {
  EXPECT_EQ(describe_optimizers(small_dense("muon")),
            (std::vector<std::string>{
                "muon: 14 tensors of 1,280 parameters; rate 0.001, decay 0.1: query, key, value, attention_out, gate, "
                "up, down",
                "adamw: 7 tensors of 200 parameters; rate 0.001, decay 0.1: embedding, norm, output"}));
}

TEST(OptimizerLines, HaveTheRateAndDecayOfEachGroupAndCountTensorsOfRolesThatGroupsDivide) {
  RunConfig config = small_dense("adamw");
  config.optimizer.groups = {{.match = {"embedding"}, .name = "", .lr = 5e-4},
                             {.match = {"model.norm.weight"}, .name = "", .weight_decay = 0}};
  EXPECT_EQ(describe_optimizers(config),
            (std::vector<std::string>{
                "adamw: 21 tensors of 1,480 parameters; rate 0.0005, decay 0.1: embedding; rate 0.001, decay 0: norm "
                "(1 of 5); rate 0.001, decay 0.1: norm (4 of 5), query, key, value, attention_out, gate, up, down, "
                "output"}));
}

TEST(OptimizerLines, TellThatPhasesScaleTheRates) {
  RunConfig config = small_dense("muon");
  config.train.stages.resize(2);
  EXPECT_EQ(describe_optimizers(config).size(), 2);
  config.train.stages[1].lr = 1e-4;
  EXPECT_EQ(describe_optimizers(config).back(), "training phases with another rate scale all of these");
}

TEST(OptimizerLines, AreNoneIfOneOptimizerUpdatesAllAlike) {
  for (const char* name : {"adamw", "sgd", "lamb", "sophiag"})
    EXPECT_TRUE(describe_optimizers(small_dense(name)).empty()) << name;
}

}  // namespace
}  // namespace athanor::optimizer_lines_test

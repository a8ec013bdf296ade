#include "arch/weight_decay.h"

#include <gtest/gtest.h>

namespace athanor::weight_decay_test {
namespace {

RunConfig two_layers() {
  RunConfig c;
  c.model.family = "llama";
  c.model.num_hidden_layers = 2;
  return c;
}

TEST(WeightDecay, PatternsAreHeldAgainstTheWholeModel) {
  RunConfig c = two_layers();
  EXPECT_TRUE(find_unmatched_decay_patterns(c).empty());
  c.optimizer.no_weight_decay = {"*norm.weight", "model.embed_tokens.weight", "lm_head.weight", "model.layers.1.*"};
  EXPECT_TRUE(find_unmatched_decay_patterns(c).empty());
}

TEST(WeightDecay, EachPatternThatMatchesNothingIsNamed) {
  RunConfig c = two_layers();
  c.optimizer.no_weight_decay = {"*bias", "*norm.weight", "model.layers.2.*"};
  const auto lines = find_unmatched_decay_patterns(c);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_NE(lines[0].find("\"*bias\" matches no parameter of this model"), std::string::npos) << lines[0];
  EXPECT_NE(lines[1].find("\"model.layers.2.*\""), std::string::npos) << lines[1];
}

}  // namespace
}  // namespace athanor::weight_decay_test

#include "model/rotary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace athanor::rotary_test {
namespace {

ModelConfig model_with(const std::string& rope_type, double factor) {
  ModelConfig m;
  m.family = "llama";
  m.hidden_size = 128;
  m.num_attention_heads = 2;
  m.max_position_embeddings = 4096;
  m.rope_scaling.rope_type = rope_type;
  m.rope_scaling.factor = factor;
  return m;
}

std::vector<double> ratios(const ModelConfig& m) {
  ModelConfig unscaled = m;
  unscaled.rope_scaling = {};
  const Tensor ratio = make_rotary(m).frequency / make_rotary(unscaled).frequency;
  std::vector<double> out;
  for (int64_t i = 0; i < ratio.numel(); ++i) out.push_back(ratio[i].item<double>());
  return out;
}

TEST(Rotary, LinearDividesEveryFrequencyAndDynamicNone) {
  for (const double ratio : ratios(model_with("linear", 4))) EXPECT_FLOAT_EQ(ratio, 0.25);
  for (const double ratio : ratios(model_with("dynamic", 4))) EXPECT_EQ(ratio, 1);
  EXPECT_EQ(make_rotary(model_with("linear", 4)).scale, 1);
}

TEST(Rotary, Llama3LeavesFastDimsAloneAndStretchesSlowOnes) {
  auto m = model_with("llama3", 8);
  m.rope_scaling.original_max_position_embeddings = 512;
  const auto r = ratios(m);
  for (size_t i = 0; i < r.size(); ++i) {
    const double turns = 512 * std::pow(1e4, -static_cast<double>(i) / 32) / (2 * std::numbers::pi);
    if (turns >= 4) {
      EXPECT_EQ(r[i], 1) << i;
    }
    if (turns <= 1) {
      EXPECT_FLOAT_EQ(r[i], 0.125) << i;
    }
    if (turns > 1 && turns < 4) {
      EXPECT_TRUE(r[i] > 0.125 && r[i] < 1) << i;
    }
  }
  EXPECT_EQ(r.front(), 1);
  EXPECT_FLOAT_EQ(r.back(), 0.125);
}

TEST(Rotary, YarnRampsBetweenItsBetas) {
  auto m = model_with("yarn", 4);
  m.rope_scaling.original_max_position_embeddings = 1024;
  const auto r = ratios(m);
  EXPECT_EQ(r.front(), 1);
  EXPECT_FLOAT_EQ(r.back(), 0.25);
  EXPECT_TRUE(std::is_sorted(r.rbegin(), r.rend()));
  EXPECT_DOUBLE_EQ(make_rotary(m).scale, 0.1 * std::log(4.0) + 1);
  m.rope_scaling.mscale = m.rope_scaling.mscale_all_dim = 0.7;
  EXPECT_EQ(make_rotary(m).scale, 1);
  m.rope_scaling.attention_factor = 1.25;
  EXPECT_EQ(make_rotary(m).scale, 1.25);
}

TEST(Rotary, WithoutAnOriginalLengthTheLongestSequenceCounts) {
  auto left_out = model_with("llama3", 8), written = left_out;
  written.rope_scaling.original_max_position_embeddings = 4096;
  EXPECT_TRUE(make_rotary(left_out).frequency.equal(make_rotary(written).frequency));
}

}  // namespace
}  // namespace athanor::rotary_test

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
  EXPECT_FALSE(make_rotary(model_with("linear", 4)).scale.defined());
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
  EXPECT_TRUE(make_rotary(m).scale.eq(static_cast<float>(0.1 * std::log(4.0) + 1)).all().item<bool>());
  m.rope_scaling.mscale = m.rope_scaling.mscale_all_dim = 0.7;
  EXPECT_FALSE(make_rotary(m).scale.defined());
  m.rope_scaling.attention_factor = 1.25;
  EXPECT_TRUE(make_rotary(m).scale.eq(1.25).all().item<bool>());
}

TEST(Rotary, LongRopeDividesEachTurnedPairByAFactorThatTheLengthOfTheSequenceDecides) {
  auto m = model_with("longrope", 16);
  m.family = "phi3";
  m.partial_rotary_factor = 0.5;  // 16 of 32 pairs
  m.rope_scaling.original_max_position_embeddings = 6;
  m.rope_scaling.short_factor = std::vector<double>(16, 2);
  m.rope_scaling.long_factor = std::vector<double>(16, 8);
  const ops::RotaryFrequencies found = make_rotary(m);
  const Tensor turned = ops::inverse_frequency(32, m.rope_theta);
  EXPECT_TRUE(found.frequency.narrow(0, 0, 16).equal(turned / 2));
  EXPECT_TRUE(found.of_long.narrow(0, 0, 16).equal(turned / 8));
  EXPECT_TRUE(found.frequency.narrow(0, 16, 16).eq(0).all().item<bool>());
  EXPECT_TRUE(found.scale.narrow(0, 0, 16)
                  .eq(static_cast<float>(std::sqrt(1 + std::log(16.0) / std::log(6.0))))
                  .all()
                  .item<bool>());
  EXPECT_TRUE(found.scale.narrow(0, 16, 16).eq(1).all().item<bool>());
  ops::RotationTables tables(found, at::kCPU);
  const auto at_1 = [&](int64_t tokens) { return tables.of_sequences(1, tokens, {}).sin[0][1] / found.scale; };
  EXPECT_TRUE(at_1(6).allclose(at::sin(found.frequency), 1e-6));
  EXPECT_TRUE(at_1(7).allclose(at::sin(found.of_long), 1e-6));
}

TEST(Rotary, WithoutAnOriginalLengthTheLongestSequenceCounts) {
  auto left_out = model_with("llama3", 8), written = left_out;
  written.rope_scaling.original_max_position_embeddings = 4096;
  EXPECT_TRUE(make_rotary(left_out).frequency.equal(make_rotary(written).frequency));
}

}  // namespace
}  // namespace athanor::rotary_test

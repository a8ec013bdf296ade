// Sets every number of the configuration to the worst values of its type: each is refused by its name, or can be used
// as it is.

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <map>
#include <set>

#include "config/checks.h"
#include "config/testing/error_of.h"

namespace athanor::numbers_test {
namespace {

// Collects names and kinds of all fields that are numbers.
class Numbers : public Fields {
 public:
  std::vector<std::string> integers, reals, lists;

  void field(const char*, bool&, const char*, const Check<bool>&) override {}
  void field(const char* key, int64_t&, const char*, const Check<int64_t>&) override { integers.push_back(at_ + key); }
  void field(const char* key, double&, const char*, const Check<double>&) override { reals.push_back(at_ + key); }
  void field(const char*, std::string&, const char*, const Check<std::string>&) override {}
  void field(const char* key, std::vector<double>&, const char*, const Check<std::vector<double>>&) override {
    lists.push_back(at_ + key);
  }
  void field(const char* key, std::vector<int64_t>&, const char*, const Check<std::vector<int64_t>>&) override {
    lists.push_back(at_ + key);
  }
  void field(const char*, std::vector<std::string>&, const char*, const Check<std::vector<std::string>>&) override {}
  void field(const char* key, CountOrAuto&, const char*, const Check<CountOrAuto>&) override {
    integers.push_back(at_ + key);
  }
  void field(const char*, NameOrNames&, const char*, const Check<NameOrNames>&) override {}

 protected:
  bool enter(const char* key, const char*) override {
    before_.push_back(at_);
    at_ += std::string(key) + ".";
    return true;
  }
  void leave() override {
    at_ = before_.back();
    before_.pop_back();
  }
  size_t enter_list(const char*, const char*, size_t) override { return 0; }
  void enter_item() override {}
  void leave_list() override {}

 private:
  std::string at_;
  std::vector<std::string> before_;
};

Numbers all_numbers() {
  Numbers numbers;
  RunConfig config;
  config.describe(numbers);
  return numbers;
}

constexpr const char* kBase = "[model]\nnum_experts = 16\nnum_experts_per_tok = 4\n";

std::string refusal_of(const std::string& key, const std::string& value) {
  return error_of(kBase, {key + "=" + value});
}

// These are never cast, multiplied or used as sizes of memory: steps at which something happens, and seeds.
const std::set<std::string> kAnyCount = {"train.seed",
                                         "train.validation_interval",
                                         "checkpoint.interval",
                                         "checkpoint.model_interval",
                                         "checkpoint.keep_every",
                                         "metrics.timeline_step",
                                         "metrics.layer_statistics",
                                         "metrics.noise_scale_interval",
                                         "metrics.update_watch_interval",
                                         "integrity.interval"};
// These are only used in double, where large ones saturate.
const std::set<std::string> kAnyReal = {"moe.capacity_factor"};

TEST(Numbers, AnIntegerBeyondItsUseIsRefusedByName) {
  for (const auto& key : all_numbers().integers) {
    const auto expects_refusal = [&](const char* value) {
      EXPECT_NE(refusal_of(key, value).find(key), std::string::npos) << key << " = " << value;
    };
    expects_refusal("-9223372036854775808");
    expects_refusal("-2");
    expects_refusal("nan");
    expects_refusal("1.5");
    if (kAnyCount.contains(key)) {
      EXPECT_EQ(refusal_of(key, "9223372036854775807"), "") << key;
      continue;
    }
    expects_refusal("9223372036854775807");
    expects_refusal("4611686018427387904");
    expects_refusal("2251799813685248");  // 2^51
  }
}

TEST(Numbers, ARealNumberThatItsTypeCannotHoldIsRefusedByName) {
  for (const auto& key : all_numbers().reals) {
    for (const char* value : {"nan", "-nan", "inf", "-inf", "-5.0", "-1e-60"}) {
      if (key == "moe.router_noise" && value == std::string_view("inf")) continue;  // then only the noise chooses
      EXPECT_NE(refusal_of(key, value).find(key), std::string::npos) << key << " = " << value;
    }
    if (kAnyReal.contains(key)) continue;
    for (const char* value : {"1e300", "1e39"})
      EXPECT_NE(refusal_of(key, value).find(key), std::string::npos) << key << " = " << value;
  }
}

TEST(Numbers, WhatWouldBe0InFp32IsRefusedWhereFp32Computes) {
  const std::set<std::string> in_double = {"moe.capacity_factor",         "metrics.gemm_peak_tflops",
                                           "checkpoint.interval_minutes", "checkpoint.write_mb_s",
                                           "checkpoint.mtbf_hours",       "eval.limit"};
  for (const auto& key : all_numbers().reals) {
    if (in_double.contains(key)) continue;
    for (const char* value : {"1e-60", "1e-40"})
      EXPECT_NE(refusal_of(key, value).find(key), std::string::npos) << key << " = " << value;
  }
  EXPECT_NE(refusal_of("optimizer.eps", "1e-60").find("optimizer.eps: expected a number from 1.18e-38 to 3.4e+38"),
            std::string::npos)
      << refusal_of("optimizer.eps", "1e-60");
  EXPECT_EQ(refusal_of("optimizer.eps", "1e-30"), "");
}

TEST(Numbers, ListsHaveBoundsToo) {
  EXPECT_EQ(
      all_numbers().lists,
      (std::vector<std::string>{"model.mlp_only_layers", "model.full_attention_layers",
                                "model.rope_scaling.short_factor", "model.rope_scaling.long_factor", "optimizer.betas",
                                "optimizer.newton_schulz_coefficients", "parallelism.pipeline_split"}));
  EXPECT_NE(refusal_of("optimizer.lr", "-1e-6").find("got -1e-06"), std::string::npos);
  for (const char* betas : {"[nan, 0.9]", "[0.9, 1.0]", "[0.9, 0.99999999999]", "[0.9, -0.1]", "[0.9]", "[0.9, inf]"})
    EXPECT_NE(refusal_of("optimizer.betas", betas).find("optimizer.betas"), std::string::npos) << betas;
  EXPECT_EQ(refusal_of("optimizer.betas", "[0.0, 0.999999]"), "");
  for (const char* split : {"[-1]", "[9223372036854775807]"})
    EXPECT_NE(refusal_of("parallelism.pipeline_split", split).find("pipeline_split"), std::string::npos) << split;
}

TEST(Numbers, ThoseOfStagesAndSourcesHaveTheSameBounds) {
  const auto stage = [](const std::string& field) {
    return error_of(kBase, {"train.stages=[{steps = 10, " + field + "}]"});
  };
  EXPECT_EQ(stage("lr = 1e-3"), "");
  for (const char* field : {"lr = 1e-60", "lr = nan", "min_lr = -2.0", "min_lr = 1e39", "warmup_steps = -2",
                            "decay_steps = 9223372036854775807", "seq_len = 2147483648", "seq_len = -1",
                            "global_batch_size = 9223372036854775807", "micro_batch_size = 4294967297"}) {
    const std::string name = std::string(field).substr(0, std::string(field).find(' '));
    EXPECT_NE(stage(field).find("train.stages[0]." + name), std::string::npos) << field << ": " << stage(field);
  }
  EXPECT_NE(error_of(kBase, {"train.stages=[{steps = 9223372036854775807}, {steps = 9223372036854775807}]"})
                .find("train.stages[0].steps"),
            std::string::npos);
  EXPECT_NE(error_of(kBase, {"train.stages=[{steps = 1099511627776}, {steps = 1}]"})
                .find("the training phases' steps add up to"),
            std::string::npos);
  for (const char* source : {"weight = nan", "weight = inf", "weight = -1.0", "max_epochs = nan"}) {
    const auto text = std::string("data.sources=[{path = \"a\", weight = 1.0, ") + source + "}]";
    EXPECT_NE(error_of(kBase, {text}), "") << source;
  }
}

TEST(Numbers, ProductsThatOverflowAreRefusedWithTheirFactors) {
  const auto message =
      error_of(kBase, {"data.seq_len=16777216", "model.max_position_embeddings=16777216",
                       "train.global_batch_size=16777216", "train.micro_batch_size=1024", "train.steps=1099511627776"});
  EXPECT_NE(message.find("train.micro_batch_size (1024) · data.seq_len (16777216)"), std::string::npos) << message;
  EXPECT_NE(message.find("train.global_batch_size (16777216) · data.seq_len (16777216) are 2.815e+14 tokens"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("train.steps (1099511627776)"), std::string::npos) << message;
  const auto large = error_of(kBase, {"model.hidden_size=16777216", "model.intermediate_size=16777216"});
  EXPECT_NE(large.find("model: its sizes make about"), std::string::npos) << large;
}

TEST(Numbers, AModelThatNoTextWasReadForIsHeldToTheSameBounds) {
  ModelConfig model;
  model.num_experts = 16;
  model.num_experts_per_tok = 4;
  EXPECT_TRUE(find_contradictions(model).empty());
  model.rms_norm_eps = 1e-60;
  model.rope_scaling.factor = NAN;
  const auto lines = find_contradictions(model);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_NE(lines[0].find("model.rms_norm_eps: expected"), std::string::npos) << lines[0];
  EXPECT_NE(lines[1].find("model.rope_scaling.factor: expected a number from 1 to 1e+06, got nan"), std::string::npos)
      << lines[1];
}

TEST(Numbers, AnEmptyPathIsNoPlaceToResumeFrom) {
  EXPECT_NE(refusal_of("checkpoint.resume", "\"\"").find("set it to \"auto\", \"never\" or the path"),
            std::string::npos);
  EXPECT_EQ(refusal_of("checkpoint.resume", "never"), "");
}

TEST(Numbers, AListOfNamesSaysWhichTheyMayBe) {
  EXPECT_NE(
      refusal_of("checkpoint.allow_model_change", "[\"width\"]").find("expected a list of rope_theta, rope_scaling"),
      std::string::npos);
}

TEST(Numbers, ARunNeedsAFolder) {
  EXPECT_NE(refusal_of("train.run_dir", "\"\"").find("train.run_dir: expected the path of a folder"),
            std::string::npos);
  EXPECT_EQ(refusal_of("train.run_dir", "."), "");
}

}  // namespace
}  // namespace athanor::numbers_test

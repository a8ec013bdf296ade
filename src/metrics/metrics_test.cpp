#include "metrics/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>

namespace athanor::metrics_test {
namespace {

StepMetrics example() {
  StepMetrics m;
  m.step = 10;
  m.loss = 10.8213;
  m.grad_norm = 2.5495;
  m.lr = 4e-5;
  m.tokens = 23272;
  m.step_s = 2;
  m.flops = 405.56e12;
  m.executed_flops = 541e12;
  m.gemm_peak_flops = 989.17e12;
  m.memory_bytes = 7870000000;
  return m;
}

TEST(Metrics, TheLineIsThatWhichScriptsRead) {
  EXPECT_EQ(format_step_line(example()),
            "step: 10  loss: 10.8213  grad_norm: 2.5495  lr: 4.00e-05  tps: 11,636  tflops: 202.78  mfu: 20.50%  "
            "memory: 7.33GiB");
}

TEST(Metrics, SmallFiguresShowThreeDigits) {
  StepMetrics m = example();
  m.flops = 0.1e12;
  m.gemm_peak_flops = 0.4e12;
  EXPECT_NE(format_step_line(m).find("tflops: 0.0500  mfu: 12.50%"), std::string::npos) << format_step_line(m);
  m.flops = 0.00025e12;
  EXPECT_NE(format_step_line(m).find("tflops: 0.000125  mfu: 0.0312%"), std::string::npos) << format_step_line(m);
}

TEST(Metrics, TheTimeLeftEndsTheLineWhereItIsKnown) {
  StepMetrics m = example();
  m.seconds_left = 252;
  EXPECT_TRUE(format_step_line(m).ends_with("memory: 7.33GiB  eta: 4:12")) << format_step_line(m);
  EXPECT_EQ(nlohmann::json::parse(to_json_line(m))["seconds_left"], 252);
  EXPECT_FALSE(nlohmann::json::parse(to_json_line(example())).contains("seconds_left"));
}

TEST(Metrics, AStepWithoutTimeOrPeakHasNoInfinitiesInIt) {
  StepMetrics m = example();
  m.step_s = 0;
  EXPECT_NE(format_step_line(m).find("tps: 0  tflops: 0.00  mfu: 0.00%"), std::string::npos) << format_step_line(m);
  m = example();
  m.gemm_peak_flops = 0;
  EXPECT_NE(format_step_line(m).find("mfu: 0.00%"), std::string::npos) << format_step_line(m);
}

TEST(Metrics, WhatIsNotFiniteShowsInTheLineAndIsNullInJson) {
  StepMetrics m = example();
  m.loss = std::copysign(NAN, -1.0);
  m.grad_norm = INFINITY;
  m.routers = {{.load_max_over_mean = 1.5}, {.load_max_over_mean = NAN}};
  EXPECT_NE(format_step_line(m).find("loss: nan  grad_norm: inf"), std::string::npos) << format_step_line(m);
  const auto json = nlohmann::json::parse(to_json_line(m));
  EXPECT_TRUE(json["loss"].is_null());
  EXPECT_TRUE(json["grad_norm"].is_null());
  EXPECT_TRUE(json["expert_load_max_over_mean"][1].is_null());
}

TEST(Metrics, TheJsonLineHoldsEveryFigureUnderItsName) {
  StepMetrics m = example();
  m.attempt = 3;
  m.aux_loss = 1.25;
  m.z_loss = 0.5;
  m.router_entropy = 2.75;
  m.changed_share = 0.875;
  m.clipped_share = 0.25;
  m.largest_logit = {101.5, 3, 5};
  m.sequences = 12;
  m.tokens_seen = int64_t{1} << 53;
  m.data_s = 0.125;
  m.forward_s = 0.5;
  m.backward_s = 1;
  m.optimizer_s = 0.25;
  m.forward_comm_s = 0.125;
  m.backward_comm_s = 0.75;
  m.peak_memory_bytes = 8000000000;
  m.gemm_peak_is = "bfloat16, our own product";
  m.threads = 2;
  m.routers = {{1.5, 1.25, 0, 0, 0, 3}, {2.5, 2.25, 4, 0.5, 0.125, 2.5}};
  const std::string line = to_json_line(m);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  auto json = nlohmann::json::parse(line);
  EXPECT_NEAR(json["time"].get<double>(), static_cast<double>(std::time(nullptr)), 60);
  json.erase("time");
  const auto expected = nlohmann::json::parse(R"({
    "schema": 1, "step": 10, "loss": 10.8213, "aux_loss": 1.25, "z_loss": 0.5, "router_entropy": 2.75, "grad_norm": 2.5495,
    "lr": 4e-5, "changed_share": 0.875, "clipped_share": 0.25, "attention_logit_max": 101.5, "attention_logit_max_layer": 3, "clipped_heads": 5, "sequences": 12, "tokens": 23272, "tokens_seen": 9007199254740992, "tps": 11636.0,
    "gemm_peak_is": "bfloat16, our own product", "threads": 2, "step_s": 2.0, "data_s": 0.125, "watch_s": 0.0, "forward_s": 0.5, "backward_s": 1.0, "optimizer_s": 0.25,
    "forward_compute_s": 0.375, "forward_comm_s": 0.125, "backward_compute_s": 0.25, "backward_comm_s": 0.75,
    "memory_bytes": 7870000000, "peak_memory_bytes": 8000000000, "expert_load_max_over_mean": [1.5, 2.5],
    "expert_load_p95_over_mean": [1.25, 2.25], "dead_experts": [0, 4], "reassigned_share": [0.0, 0.5],
    "dropped_share": [0.0, 0.125], "layer_router_entropy": [3.0, 2.5], "attempt": 3})");
  EXPECT_DOUBLE_EQ(json["tflops"], 202.78);
  EXPECT_DOUBLE_EQ(json["executed_tflops"], 270.5);
  EXPECT_DOUBLE_EQ(json["mfu"], 202.78 / 989.17);
  EXPECT_DOUBLE_EQ(json["gemm_peak_tflops"], 989.17);
  json.erase("gemm_peak_tflops");
  json.erase("tflops");
  json.erase("executed_tflops");
  json.erase("mfu");
  EXPECT_EQ(json, expected);
}

TEST(Metrics, TheNoiseScaleIsThereOnlyInStepsThatMeasureItAndNullUntilItIsKnown) {
  StepMetrics m = example();
  EXPECT_FALSE(nlohmann::json::parse(to_json_line(m)).contains("noise_scale"));
  m.noise = NoiseEstimate{-0.25, 1.5};
  m.noise_scale = NAN;
  const auto json = nlohmann::json::parse(to_json_line(m));
  EXPECT_TRUE(json["noise_scale"].is_null());
  EXPECT_EQ(json["noise_gradient_squared"], -0.25);
  EXPECT_EQ(json["noise_variance"], 1.5);
}

TEST(Metrics, UpdatesAreThereOnlyInStepsThatWatchThemEachWithTheNameOfItsParameter) {
  StepMetrics m = example();
  EXPECT_FALSE(nlohmann::json::parse(to_json_line(m)).contains("lost_updates"));
  m.updates = UpdateMetrics{{{"a", 0.75}, {"b", 0.5}}, {}, {}, {{"c", 3}}, {{"d", NAN}}};
  const auto json = nlohmann::json::parse(to_json_line(m));
  EXPECT_EQ(json["lost_updates"],
            nlohmann::json::parse(R"([{"parameter": "a", "share": 0.75}, {"parameter": "b", "share": 0.5}])"));
  EXPECT_EQ(json["still_weights"], nlohmann::json::array());
  EXPECT_EQ(json["not_finite_state"][0]["elements"], 3);
  EXPECT_TRUE(json["orthogonality"][0]["norm"].is_null());
}

TEST(Metrics, MemoryOfADeviceIsThereOnlyOnADevice) {
  StepMetrics m = example();
  const auto on_cpu = nlohmann::json::parse(to_json_line(m));
  for (const char* key : {"device_memory_bytes", "peak_device_memory_bytes", "held_device_memory_bytes"})
    EXPECT_FALSE(on_cpu.contains(key)) << key;
  m.device_memory = {.in_use_bytes = 5, .peak_in_use_bytes = 7, .held_bytes = int64_t{1} << 40};
  const auto json = nlohmann::json::parse(to_json_line(m));
  EXPECT_EQ(json["device_memory_bytes"], 5);
  EXPECT_EQ(json["peak_device_memory_bytes"], 7);
  EXPECT_EQ(json["held_device_memory_bytes"], int64_t{1} << 40);
}

TEST(Metrics, RanksAreThereOnlyWhereThereAreSeveral) {
  StepMetrics m = example();
  const auto alone = nlohmann::json::parse(to_json_line(m));
  for (const char* key : {"rank_grad_norms", "expert_grad_norms", "tokens_per_dest_rank", "communication"}) {
    EXPECT_FALSE(alone.contains(key)) << key;
  }
  m.rank_norms = {.ranks = {1, 4, 2}, .experts = {3, 0}};
  m.tokens_per_dest_rank = {12, 8, 4};
  m.traffic["data"] = {.calls = 3, .bytes_inside = 100, .bytes_outside = 50, .waited_s = 0.25};
  const auto json = nlohmann::json::parse(to_json_line(m));
  EXPECT_EQ(json["rank_grad_norms"], (std::vector<double>{1, 4, 2}));
  EXPECT_EQ(json["rank_grad_norm_imbalance"], 4);
  EXPECT_TRUE(json["expert_grad_norm_imbalance"].is_null());  // infinite
  EXPECT_EQ(json["tokens_per_dest_rank"], nlohmann::json::parse(R"({"max": 12.0, "mean": 8.0, "min": 4.0})"));
  EXPECT_EQ(json["communication"]["data"], nlohmann::json::parse(R"({"calls": 3, "bytes_inside": 100,
    "bytes_outside": 50, "waited_s": 0.25})"));
}

TEST(Metrics, TheTimesOfFewRanksAreListedAndOfManyTheExtremesOfEachPartAndOfTheirSums) {
  StepMetrics m = example();
  EXPECT_FALSE(nlohmann::json::parse(to_json_line(m)).contains("rank_times"));
  const auto times_of = [](size_t ranks) {
    RankTimes times;
    for (auto& part : times.of) part.assign(ranks, 0.25);
    times.of[kForwardCompute][1] = 1;
    times.of[kBackwardCompute][2] = 0.5;
    times.of[kOptimizerComm][0] = 0;
    return times;
  };
  m.rank_times = times_of(3);
  const auto few = nlohmann::json::parse(to_json_line(m));
  EXPECT_EQ(few["rank_times"].size(), kNumTimeParts);
  EXPECT_EQ(few["rank_times"]["forward_compute"], (std::vector<double>{0.25, 1, 0.25}));
  EXPECT_FALSE(few.contains("rank_time_extremes"));
  m.rank_times = times_of(100);
  const auto many = nlohmann::json::parse(to_json_line(m));
  EXPECT_FALSE(many.contains("rank_times"));
  EXPECT_EQ(many["rank_time_extremes"].size(), kNumTimeParts + 2);
  EXPECT_EQ(
      many["rank_time_extremes"]["forward_compute"],
      nlohmann::json::parse(R"({"least": {"rank": 0, "s": 0.25}, "most": {"rank": 1, "s": 1.0}, "mean": 0.2575})"));
  EXPECT_EQ(many["rank_time_extremes"]["compute"],
            nlohmann::json::parse(R"({"least": {"rank": 0, "s": 0.75}, "most": {"rank": 1, "s": 1.5}, "mean": 0.76})"));
  EXPECT_EQ(many["rank_time_extremes"]["comm"]["least"], nlohmann::json::parse(R"({"rank": 0, "s": 0.5})"));
}

TEST(Metrics, ALineDoesNotGrowWithTheNumberOfRanks) {
  StepMetrics m = example();
  std::vector<double> norms(3000, 1.5);
  norms[7] = 0.5;
  norms[2999] = 4;
  m.rank_norms = {.ranks = norms, .experts = norms};
  const auto line = to_json_line(m);
  const auto json = nlohmann::json::parse(line);
  EXPECT_FALSE(json.contains("rank_grad_norms"));
  EXPECT_EQ(json["rank_grad_norm_extremes"],
            nlohmann::json::parse(R"({"least": {"rank": 7, "norm": 0.5}, "most": {"rank": 2999, "norm": 4.0}})"));
  EXPECT_EQ(json["expert_grad_norm_extremes"], json["rank_grad_norm_extremes"]);
  EXPECT_EQ(json["rank_grad_norm_imbalance"], 8);
  EXPECT_LT(line.size(), to_json_line(example()).size() + 400);
}

TEST(Metrics, EqualNormsAreBalancedEvenWhereAllAreZero) {
  EXPECT_EQ(RankNorms::imbalance({0, 0}), 1);
  EXPECT_EQ(RankNorms::imbalance({}), 1);
  EXPECT_EQ(RankNorms::imbalance({2, 0}), INFINITY);
}

TEST(Metrics, ValidationLossIsThereOnlyWhenItWasMeasured) {
  StepMetrics m = example();
  EXPECT_FALSE(nlohmann::json::parse(to_json_line(m)).contains("validation_loss"));
  m.validation_loss = 3.5;
  EXPECT_EQ(nlohmann::json::parse(to_json_line(m))["validation_loss"], 3.5);
}

}  // namespace
}  // namespace athanor::metrics_test

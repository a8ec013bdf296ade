// Tests the small run, its trace and the bounds in one process. tests/mpi/test_verify.py tests several ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "base/testing/folder_test.h"
#include "config/dump.h"
#include "config/toml_reader.h"
#include "verify/compare.h"
#include "verify/measured.h"
#include "verify/reference_process.h"
#include "verify/small_model.h"
#include "verify/testing/traced_model.h"
#include "verify/traced_run.h"

namespace athanor::verify_test {
namespace {

namespace fs = std::filesystem;

RunConfig large_moe() {
  RunConfig config;
  config.model.family = "olmoe";
  config.model.hidden_size = 2048;
  config.model.num_hidden_layers = 32;
  config.model.num_attention_heads = 16;
  config.model.intermediate_size = 1024;
  config.model.num_experts = 96;
  config.model.num_experts_per_tok = 8;
  config.model.vocab_size = 50304;
  config.data.seq_len = 2048;
  config.train.global_batch_size = 3072;
  config.train.micro_batch_size = 4;
  config.parallelism.expert_parallel_degree = 12;
  return config;
}

TEST(SmallModel, ItKeepsExpertsAndRulesAndShrinksWidths) {
  RunConfig config = large_moe();
  config.moe.balance = "capacity";
  config.parallelism.recompute = {"moe"};
  const RunConfig small = make_small_run(config, 12, {});
  EXPECT_EQ(small.model.num_experts, 96);
  EXPECT_EQ(small.model.num_experts_per_tok, 8);
  EXPECT_EQ(small.moe.balance, Balance::kCapacity);
  EXPECT_EQ(small.parallelism.recompute, config.parallelism.recompute);
  EXPECT_EQ(small.parallelism.expert_parallel_degree, 12);
  EXPECT_EQ(small.train.dtype, "float32");
  EXPECT_LE(count_parameters(small.model), 500'000);  // 96 experts · 2 layers · 3 · 24 · 32 = 442,368 of these
  EXPECT_EQ(Layout(small, 12).microbatches(), 2);
  EXPECT_NEAR(small.model.initializer_range * std::sqrt(small.model.hidden_size), 0.02 * std::sqrt(2048), 1e-9);
}

TEST(SmallModel, ABalanceGroupOverRanksStaysOverAsMany) {
  RunConfig config = large_moe();
  config.moe.balance = "swipe";
  config.moe.balance_group = 12;  // over three data ranks of 4 sequences
  const RunConfig small = make_small_run(config, 12, {});
  EXPECT_EQ(small.moe.balance_group, 3 * small.train.micro_batch_size);
  EXPECT_EQ(small.moe.balance_group * small.data.seq_len * 8 % 96, 0);
  const RunConfig one = make_reference_run(small);
  EXPECT_EQ(one.train.micro_batch_size, small.moe.balance_group);
  EXPECT_EQ(one.train.global_batch_size, small.train.global_batch_size);
  EXPECT_EQ(Layout(one, 1).data(), 1);
}

TEST(SmallModel, BothKindsOfLayersStay) {
  RunConfig config = large_moe();
  config.model.family = "qwen3_moe";
  config.model.num_key_value_heads = 4;
  config.model.moe_intermediate_size = 512;
  config.model.decoder_sparse_step = 4;
  config.model.mlp_only_layers = {7, 11};
  const ModelConfig small = make_small_run(config, 12, {}).model;
  EXPECT_EQ(small.num_hidden_layers, 4);
  EXPECT_EQ(small.num_sparse_layers(), 1);
  EXPECT_EQ(small.num_attention_heads / small.num_key_value_heads, 4);
}

TEST(SmallModel, InBf16ExpertsAreChosenByCounters) {
  EXPECT_EQ(make_small_run(large_moe(), 12, {}).moe.router_noise, 0);
  const RunConfig small = make_small_run(large_moe(), 12, {.dtype = "bfloat16"});
  EXPECT_TRUE(std::isinf(small.moe.router_noise));
  EXPECT_EQ(dump_run_config(parse_run_config(dump_run_config(small), "text")), dump_run_config(small));
}

TEST(SmallModel, InBf16NothingIsClippedByABoundThatRoundingCrosses) {
  RunConfig config = large_moe();
  config.model.clip_qkv = 0.2;
  EXPECT_EQ(make_small_run(config, 12, {}).model.clip_qkv, 0.2);
  EXPECT_EQ(make_small_run(config, 12, {.dtype = "bfloat16"}).model.clip_qkv, 1e3);
  config.model.clip_qkv = 0;
  EXPECT_EQ(make_small_run(config, 12, {.dtype = "bfloat16"}).model.clip_qkv, 0);
}

TEST(SmallModel, ItComesBackFromItsText) {
  const RunConfig one = make_reference_run(make_small_run(large_moe(), 12, {}));
  EXPECT_EQ(dump_run_config(parse_run_config(dump_run_config(one), "text")), dump_run_config(one));
}

TEST(VerifyBatch, TokensAreRareAndFrequentAndDocumentsEnd) {
  const RunConfig small = make_small_run(large_moe(), 12, {});
  const Batch batch = make_verify_batch(small, 1, 1);
  std::vector<int> count(static_cast<size_t>(small.model.vocab_size));
  for (const int32_t token : batch.tokens) ++count.at(static_cast<size_t>(token));
  EXPECT_GT(count[0], 5 * count.back());
  EXPECT_GT(count[0], 10);
  EXPECT_NE(make_verify_batch(small, 2, 1).tokens, batch.tokens);
  EXPECT_NE(make_verify_batch(small, 1, 2).tokens, batch.tokens);
}

TEST(ReferenceProcess, TheEnvironmentOfOneRankHasNothingOfTheLauncherAndNoFaults) {
  std::vector<std::string> given = {
      "PATH=/bin",        "OMPI_COMM_WORLD_RANK=3", "PMI_RANK=3", "PMIX_RANK=3", "ATHANOR_FAULT=train.after_step:kill",
      "OMP_NUM_THREADS=1"};
  std::vector<char*> pointers;
  for (auto& variable : given) pointers.push_back(variable.data());
  pointers.push_back(nullptr);
  EXPECT_EQ(environment_outside_jobs(pointers.data()), (std::vector<std::string>{"PATH=/bin", "OMP_NUM_THREADS=1"}));
}

class TraceTest : public FolderTest {
 protected:
  static Slice part(int64_t begin, int64_t end) {
    Slice slice = whole_slice({2, 3});
    slice.flat_begin = begin;
    slice.flat_end = end;
    return slice;
  }
  WholeTrace join(const Trace& a, const Trace& b) {
    a.write(folder_ / WholeTrace::file_name(0));
    b.write(folder_ / WholeTrace::file_name(1));
    return WholeTrace::read(folder_, 2);
  }
  static StepReport report(double loss) {
    StepReport report;
    report.parts.loss_sum = loss;
    report.parts.num_targets = 1;
    return report;
  }
  const std::vector<float> values_ = {1, 2, 3, 4, 5, 6};
};

TEST_F(TraceTest, PartsOfRanksMakeAWholeTensor) {
  Trace a, b;
  a.add_pieces(1, {{"grad/w", part(0, 2), values_.data()}});
  b.add_pieces(1, {{"grad/w", part(2, 6), values_.data() + 2}});
  const WholeTrace whole = join(a, b);
  EXPECT_EQ(whole.values(1, "grad", "w"), values_);
  EXPECT_TRUE(whole.values(2, "grad", "w").empty());
  EXPECT_TRUE(whole.faults().empty());
}

TEST_F(TraceTest, ElementsOfNoRankAndOfTwoAreTold) {
  Trace a, b;
  a.add_pieces(1, {{"grad/w", part(0, 2), values_.data()}, {"grad/v", part(0, 4), values_.data()}});
  b.add_pieces(1, {{"grad/w", part(3, 6), values_.data()}, {"grad/v", part(3, 6), values_.data()}});
  const auto faults = join(a, b).faults();
  ASSERT_EQ(faults.size(), 2u);
  EXPECT_SAYS(faults[0], "1 grad/v: 1 of 6 elements are not held by exactly one rank; the first, 3, by 2");
  EXPECT_SAYS(faults[1], "1 grad/w: 1 of 6 elements are not held by exactly one rank; the first, 2, by 0");
}

TEST_F(TraceTest, RanksThatReportDifferentNumbersAreTold) {
  Trace a, b;
  a.add_step(report(2)), b.add_step(report(3));
  a.add_copy("w", "abc", 3), b.add_copy("w", "abd", 3);
  const auto faults = join(a, b).faults();
  ASSERT_EQ(faults.size(), 2u);
  EXPECT_SAYS(faults[0], "step 1: rank 1 reports loss = 3.0, rank 0 2.0");
  EXPECT_SAYS(faults[1], "w is not the same on ranks 0 and 1");
}

// Compares the relative error of adding n numbers in fp32 with the deviations from which the bound is computed.
TEST(Noise, ASumOfManyTermsErrsAsTheModelOfRoundingsSays) {
  const CounterRandom random(1, "sum");
  constexpr int64_t kTerms = 1000, kSums = 200;
  double squares = 0;
  for (uint64_t s = 0; s < kSums; ++s) {
    float sum = 0;
    double exact = 0;
    for (uint64_t i = 0; i < kTerms; ++i) {
      const auto term = static_cast<float>(random.normal(s * kTerms + i));
      sum += term, exact += term;
    }
    squares += (sum - exact) * (sum - exact) / kTerms;  // the size of a sum is √n
  }
  const double deviation = std::sqrt(squares / kSums), expected = 0x1p-24 * std::sqrt(kTerms / 3.0);
  EXPECT_LT(deviation, expected);
  EXPECT_GT(deviation, expected / 4);
}

TEST(Noise, BoundsAreTightInFp32AndWiderInBf16) {
  RunConfig small = make_small_run(large_moe(), 12, {});
  const double tight = Noise(small, 12).gradient();
  EXPECT_LT(tight, 1e-4);
  EXPECT_EQ(Noise(small, 1).gradient(), tight);
  small.train.reduce_dtype = "bfloat16";
  EXPECT_GT(Noise(small, 12).gradient(), 0x1p-8);
  EXPECT_EQ(Noise(small, 1).gradient(), tight);
  small.train.dtype = "bfloat16";
  EXPECT_LT(Noise(small, 12).gradient(), 0.5);  // half of the error of a sum that is counted twice
}

class CompareTest : public FolderTest {
 protected:
  CompareTest() { at::set_num_threads(1); }  // as in run_verify: a small model has no work for more
  ~CompareTest() override { at::set_num_threads(threads_); }
  const int threads_ = at::get_num_threads();
  static RunConfig config(int64_t micro_batch_size, const std::string& dtype = "float32") {
    RunConfig c = traced_model(micro_batch_size);
    return make_small_run(c, 1, {.steps = 3, .dtype = dtype, .keep_size = true});
  }
  WholeTrace run(const RunConfig& config, const char* name, uint64_t draw = 1) {
    fs::create_directories(folder_ / name);
    trace_run(config, draw, nullptr).write(folder_ / name / WholeTrace::file_name(0));
    return WholeTrace::read(folder_ / name, 1);
  }
  WholeTrace run(int64_t micro_batch_size, const char* name) { return run(config(micro_batch_size), name); }
  // The reference's trace, along `layout`.
  WholeTrace follow(const RunConfig& config, const WholeTrace& layout, const char* name, uint64_t draw = 1) {
    fs::create_directories(folder_ / name);
    trace_reference(config, draw, layout).write(folder_ / name / WholeTrace::file_name(0));
    return WholeTrace::read(folder_ / name, 1);
  }
  // Compares `layout`'s trace with the right configuration, as if it were a layout of it.
  Comparisons compare(const RunConfig& right, const WholeTrace& layout) {
    return compare_traces(right, 1, layout, follow(config(12), layout, "one"));
  }
  // Compares three data sets of `layout` in bf16 with one rank.
  MeasuredComparison::Findings measure(const RunConfig& layout) {
    const RunConfig one = config(12, "bfloat16");
    MeasuredComparison comparison(one, 1);
    for (uint64_t draw = 1; draw <= 3; ++draw) {
      const WholeTrace ours = run(layout, "layout", draw);
      comparison.add(ours, follow(one, ours, "one", draw), follow(make_truth_run(one), ours, "truth", draw));
    }
    return comparison.finish();
  }
  static bool any_says(const std::vector<std::string>& lines, const std::string& part) {
    return std::ranges::any_of(lines, [&](const auto& line) { return line.find(part) != std::string::npos; });
  }
};

TEST_F(CompareTest, SumsOverOtherMicrobatchesStayWithinTheBounds) {
  for (const int64_t micro_batch_size : {1, 3, 4}) {
    const auto found = compare(config(micro_batch_size), run(micro_batch_size, "other"));
    for (const auto& fault : found.faults) ADD_FAILURE() << fault;
    ASSERT_EQ(found.worst.size(), 7u);
    for (const auto& c : found.worst) {
      EXPECT_LE(c.share(), 0.3) << c.quantity << " " << c.name;  // with a margin
    }
  }
}

// Weight decay that is thirty times too large moves all parameters, and leaves the gradients of each step right for the
// moved parameters.
TEST_F(CompareTest, WhatAnUpdateDoesWrongIsNamedAsTheUpdatesAndNotAsLaterGradients) {
  RunConfig wrong = config(3);
  wrong.optimizer.weight_decay *= 30;
  const auto found = compare(config(3), run(wrong, "wrong"));
  EXPECT_TRUE(any_says(found.faults, "step 1: parameters"));
  EXPECT_FALSE(any_says(found.faults, "gradients")) << found.faults.back();
}

// A forward that reads the parameters of the step before.
TEST_F(CompareTest, AStepThatDoesNotBeginWithTheParametersOfTheOneBeforeIsNamed) {
  const WholeTrace ours = run(3, "ours"), other = run(config(3), "other", 2);
  const auto found = compare_traces(config(3), 1, ours, follow(config(12), other, "one"));
  EXPECT_FALSE(any_says(found.faults, "step 1: gradients"));
  EXPECT_TRUE(any_says(found.faults, "step 2: gradients, later"));
}

TEST_F(CompareTest, SumsOverOtherMicrobatchesStayWithinMeasuredNoise) {
  for (const int64_t micro_batch_size : {1, 3}) {
    const auto found = measure(config(micro_batch_size, "bfloat16"));
    for (const auto& fault : found.comparisons.faults) ADD_FAILURE() << fault;
    for (const auto& [name, line] : found.failed) ADD_FAILURE() << line;
    EXPECT_EQ(found.comparisons.worst.size(), 9u);
  }
}

TEST_F(CompareTest, ARouterSLossThatIsLostIsSeenThroughBf16) {
  RunConfig wrong = config(3, "bfloat16");
  wrong.moe.router_z_loss_coef = 0;
  const auto found = measure(wrong);
  EXPECT_TRUE(std::ranges::any_of(
      found.failed, [](const auto& one) { return one.second.find("mlp.gate.weight") != std::string::npos; }));
}

// A hundredth of the decay: 4e-4 · 0.1 · 0.01 = 4e-7 of a weight.
TEST_F(CompareTest, AnUpdateThatItsGradientsDoNotExplainIsSeenInBf16AsSharplyAsInFp32) {
  RunConfig wrong = config(3, "bfloat16");
  wrong.optimizer.weight_decay *= 1.01;
  EXPECT_TRUE(any_says(measure(wrong).comparisons.faults, "step 1: parameters: "));
}

TEST_F(CompareTest, OneRunTwiceHasTheSameBitsAndOtherDataHaveNot) {
  const WholeTrace one = run(4, "one"), again = run(4, "again"), other = run(3, "other");
  EXPECT_TRUE(find_bit_differences(config(4), again, one).empty());
  EXPECT_FALSE(find_bit_differences(config(4), other, one).empty());
}

}  // namespace
}  // namespace athanor::verify_test

// A decoder whose experts are shared among ranks trains like one process, with every kind of recomputation.

#include <gtest/gtest.h>

#include "comm/thread_ranks.h"
#include "model/decoder.h"
#include "model/initialize.h"
#include "parallel/loss_sum.h"

namespace athanor::expert_parallel_test {
namespace {

constexpr int kRanks = 2;
constexpr int64_t kSeqLen = 12;

ModelConfig sparse_model() {
  ModelConfig m;
  m.family = "olmoe";
  m.hidden_size = 32;
  m.num_hidden_layers = 2;
  m.num_attention_heads = 4;
  m.intermediate_size = 24;
  m.num_experts = 6;
  m.num_experts_per_tok = 2;
  m.vocab_size = 50;
  m.initializer_range = 0.1;
  m.num_shared_experts = 1;
  return m;
}

Tensor tokens_of(int64_t first, int64_t count) {
  return at::arange(4 * kSeqLen).mul(17).remainder(50).view({4, kSeqLen}).narrow(0, first, count).contiguous();
}

// Gradients by name, the loss, and the evaluation, of one rank or of one process.
struct Result {
  std::map<std::string, Tensor> grads;
  double loss_sum = 0, aux_sum = 0;
  Tensor log_probability;
};

Result run(int64_t first_sequence, int64_t sequences, int64_t scored, int rank, int degree, DecoderOptions options) {
  const ModelConfig model = sparse_model();
  ParameterStore parameters(make_bucket_entries(model, rank, degree), at::kFloat, ParameterStore::Use::kTraining);
  initialize_parameters(model, 1, parameters);
  Decoder decoder(model, parameters, std::move(options));
  Labels labels;
  const Tensor tokens = tokens_of(first_sequence, sequences);
  labels.targets = at::full_like(tokens, -100);
  labels.targets.narrow(1, 0, kSeqLen - 1).copy_(tokens.narrow(1, 1, kSeqLen - 1));
  labels.loss_scale = 1.0 / static_cast<double>(4 * (kSeqLen - 1));
  labels.aux_scale = 0.01 / 8;
  decoder.forward(0, tokens, &labels);
  decoder.backward(0, {}, nullptr);
  const LossNumbers parts = numbers_of(decoder.take_parts(0));
  Result result{{}, parts.loss_sum, parts.aux_sum, {}};
  for (const BucketEntry& entry : parameters.table())
    result.grads[entry.name] = parameters.weight(entry.name).grad.clone();
  Labels score_labels;
  const Tensor to_score = tokens_of(0, scored);
  score_labels.targets = to_score;
  result.log_probability = decoder.score(to_score, &score_labels).log_probability;
  return result;
}

std::vector<Result> run_ranks(const RecomputeKinds& recompute, const moe::DispatchOptions& dispatch) {
  std::vector<Result> results(kRanks);
  comm::WorldOptions world_options;
  world_options.check = true;
  world_options.timeout = std::chrono::seconds(60);
  comm::run_ranks(
      kRanks,
      [&](comm::World& world) {
        at::set_num_threads(1);
        const int rank = world.rank();
        DecoderOptions options;
        options.recompute = recompute;
        options.dispatch = std::make_shared<moe::Dispatch>(world.all(), dispatch);
        // In the evaluation, rank 1 has no sequence left.
        results[static_cast<size_t>(rank)] = run(2 * rank, 2, rank == 0 ? 3 : 0, rank, kRanks, options);
      },
      world_options);
  return results;
}

// A gradient is a sum of terms with a few hundred roundings each; the largest term stands for all of a tensor.
void expect_near(const Tensor& actual, const Tensor& expected, const std::string& what) {
  const double allowed = 2e-5 * std::max(expected.abs().max().item<double>(), 1e-3);
  EXPECT_LE((actual - expected).abs().max().item<double>(), allowed) << what;
}

TEST(ExpertParallel, ADecoderOverTwoRanksTrainsAsOneProcess) {
  const Result whole = run(0, 4, 3, 0, 1, {});
  for (const auto kind : {DispatchKind::kAllGather, DispatchKind::kAllToAll}) {
    const auto ranks = run_ranks({}, {kind, 2, 1});
    EXPECT_NEAR(ranks[0].loss_sum + ranks[1].loss_sum, whole.loss_sum, whole.loss_sum * 1e-6);
    EXPECT_NEAR(ranks[0].aux_sum + ranks[1].aux_sum, whole.aux_sum, whole.aux_sum * 1e-6);
    EXPECT_TRUE(at::allclose(ranks[0].log_probability, whole.log_probability, 0, 1e-5));
    EXPECT_EQ(ranks[1].log_probability.size(0), 0);
    for (const auto& [name, grad] : whole.grads) {
      const Tensor &a = ranks[0].grads.at(name), &b = ranks[1].grads.at(name);
      expect_near(a.sizes() == grad.sizes() ? a + b : at::cat({a, b}), grad, name);
    }
  }
}

TEST(ExpertParallel, RecomputationRepeatsTheExchangeAndKeepsEveryBit) {
  for (const auto kind : {DispatchKind::kAllGather, DispatchKind::kAllToAll}) {
    const auto plain = run_ranks({}, {kind, 2, 1});
    for (const RecomputeKinds& kinds : {RecomputeKinds{.moe = true}, RecomputeKinds{.layer = true},
                                        RecomputeKinds{.norm = true, .attention = true, .moe = true}}) {
      const auto again = run_ranks(kinds, {kind, 2, 1});
      for (size_t r = 0; r < kRanks; ++r) {
        EXPECT_EQ(again[r].loss_sum, plain[r].loss_sum);
        EXPECT_EQ(again[r].aux_sum, plain[r].aux_sum);
        for (const auto& [name, grad] : plain[r].grads) EXPECT_TRUE(at::equal(again[r].grads.at(name), grad)) << name;
      }
    }
  }
}

}  // namespace
}  // namespace athanor::expert_parallel_test

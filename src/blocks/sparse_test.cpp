#include "blocks/sparse.h"

#include <gtest/gtest.h>

#include "arch/model_spec.h"
#include "model/decoder.h"
#include "model/initialize.h"
#include "ops/swiglu.h"

namespace athanor::sparse_block_test {
namespace {

ModelConfig sparse_model() {
  ModelConfig m;
  m.hidden_size = 16;
  m.num_hidden_layers = 1;
  m.num_attention_heads = 2;
  m.intermediate_size = 12;
  m.num_experts = 4;
  m.num_experts_per_tok = 2;
  m.vocab_size = 20;
  m.initializer_range = 0.3;
  return m;
}

struct Fixture {
  explicit Fixture(const ModelConfig& model, const moe::RoutingPolicy& policy = {})
      : parameters(make_bucket_entries(model), at::kFloat, ParameterStore::Use::kTraining),
        sparse(make_layer_spec(model, 0).sparse(), parameters, policy) {
    initialize_parameters(model, 1, parameters);
  }
  Tensor weight(const std::string& name) const {
    return parameters.weight("model.layers.0.mlp." + name + ".weight").value;
  }

  ParameterStore parameters;
  SparseBlock sparse;
};

Tensor some_tokens() {
  at::manual_seed(1);
  return at::randn({2, 8, 16});
}

TEST(SparseBlock, SharedExpertsAreAddedForEveryToken) {
  ModelConfig model = sparse_model();
  const Tensor x = some_tokens();
  const Tensor without = Fixture(model).sparse.forward(x, nullptr);
  model.num_shared_experts = 2;
  const Fixture f(model);
  const Tensor shared = at::linear(
      at::silu(at::linear(x, f.weight("shared_experts.gate_proj"))) * at::linear(x, f.weight("shared_experts.up_proj")),
      f.weight("shared_experts.down_proj"));
  // Sums of up to 24 products, whose magnitudes sum to at most 100.
  EXPECT_TRUE(at::allclose(f.sparse.forward(x, nullptr), without + shared, 0, 100 * 64 * 0x1p-24));
  EXPECT_GT(shared.abs().max().item<double>(), 0.01);
}

TEST(SparseBlock, ATokenWhoseChoicesAreDroppedPassesThrough) {
  // Each expert takes at most one choice: the last token of the group gets no expert.
  const Fixture f(sparse_model(), {{Balance::kCapacity, 1, 1e-9, CapacityOrder::kPosition}});
  std::vector<moe::Routing> routings;
  const Tensor y = f.sparse.forward(some_tokens(), &routings);
  ASSERT_EQ(routings.size(), 1u);
  EXPECT_LE(routings[0].load_E.max().item<int64_t>(), 2);  // one for each of two groups
  const Tensor lost = (routings[0].expert_ids_TK < 0).all(1);
  ASSERT_GT(lost.sum().item<int64_t>(), 0);
  EXPECT_TRUE((y.view({16, 16}).index({lost}) == 0).all().item<bool>());
}

TEST(SparseBlock, BalancesAndCountsInTrainingOnly) {
  const Fixture f(sparse_model(), {{.kind = Balance::kForcedUniform}});
  const Fixture plain(sparse_model());
  const Tensor x = some_tokens();
  std::vector<moe::Routing> routings;
  const Tensor trained = f.sparse.forward(x, &routings);
  EXPECT_TRUE(at::equal(f.sparse.forward(x, nullptr), plain.sparse.forward(x, nullptr)));
  EXPECT_FALSE(at::equal(trained, plain.sparse.forward(x, nullptr)));
}

TEST(SparseBlock, TheProbabilityBeforeOrAfterTheDownProjectionIsOneFunction) {
  moe::RoutingPolicy before;
  before.combine = CombineWeights::kBeforeDown;
  const Tensor x = some_tokens();
  const Tensor a = Fixture(sparse_model()).sparse.forward(x, nullptr),
               b = Fixture(sparse_model(), before).sparse.forward(x, nullptr);
  EXPECT_TRUE(at::allclose(a, b, 0, 100 * 64 * 0x1p-24));
}

}  // namespace
}  // namespace athanor::sparse_block_test

// Selective recomputation of a whole decoder: the bits of every gradient, the counts, and what is kept.

#include <gtest/gtest.h>

#include "base/testing/test_all.h"
#include "config/families.h"
#include "model/decoder.h"
#include "model/initialize.h"
#include "ops/cpu_allocator.h"

namespace athanor::recompute_test {
namespace {

ModelConfig tiny(const std::string& family, int64_t hidden = 32) {
  const bool sparse = find_family(family)->sparse;
  ModelConfig m;
  m.family = family;
  m.hidden_size = hidden;
  m.num_hidden_layers = find_family(family)->mixed_layers ? 3 : 2;
  m.num_attention_heads = 4;
  m.intermediate_size = hidden;
  m.num_experts = sparse ? 6 : 0;
  m.num_experts_per_tok = sparse ? 2 : 0;
  m.vocab_size = 50;
  m.initializer_range = 0.1;
  if (find_family(family)->mixed_layers) {
    m.moe_intermediate_size = 20;
    m.mlp_only_layers = {1};
  }
  return m;
}

RecomputeKinds subset(int bits) { return {(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0}; }

DecoderOptions options(AuxScope scope, int64_t loss_chunk_tokens, const RecomputeKinds& kinds) {
  DecoderOptions result;
  result.aux_scope = scope;
  result.loss_chunk_tokens = loss_chunk_tokens;
  result.recompute = kinds;
  return result;
}

struct Result {
  Tensor gradient;
  LossParts parts;
};

Result run(const ModelConfig& model, at::ScalarType dtype, const DecoderOptions& decoder_options, const Tensor& tokens,
           const ops::DocumentLengths& documents, int microbatches = 2) {
  ParameterStore parameters(make_bucket_entries(model), dtype, ParameterStore::Use::kTraining);
  initialize_parameters(model, 1, parameters);
  Decoder decoder(model, parameters, decoder_options);
  Labels labels;
  labels.targets = at::roll(tokens, -1, 1);
  labels.documents = documents;
  labels.loss_scale = 1 / static_cast<double>(tokens.numel());
  labels.aux_scale = 0.01;
  labels.z_scale = 0.001;
  Result result;
  for (int microbatch = 0; microbatch < microbatches; ++microbatch) {
    decoder.forward(microbatch, tokens, &labels);
    decoder.backward(microbatch, {}, nullptr);
    result.parts += decoder.take_parts(microbatch);
  }
  result.gradient = parameters.grad().clone();
  return result;
}

class RecomputeTest : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Families, RecomputeTest, testing::ValuesIn(family_names()),
                         [](const auto& instance) { return instance.param; });
INSTANTIATE_TEST_SUITE_P(TestAll, RecomputeTest, testing::ValuesIn(family_names()),
                         [](const auto& instance) { return instance.param; });

TEST_P(RecomputeTest, EverySubsetGivesTheBitsOfNone) {
  at::manual_seed(1);
  const Tensor tokens = at::randint(0, 50, {2, 24}, at::kLong);
  const ModelConfig model = tiny(GetParam());
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    for (const ops::DocumentLengths& documents : {ops::DocumentLengths{}, ops::DocumentLengths{{5, 1, 18}, {24}}}) {
      for (const auto scope : {AuxScope::kSequence, AuxScope::kGlobal, AuxScope::kTransformers}) {
        // In `make test` one type with each scope, and documents with one of both.
        const bool is_bf16 = dtype == at::kBFloat16, is_global = scope == AuxScope::kGlobal;
        const bool is_of_part = is_bf16 == !documents.empty() && (!model.is_moe() || is_bf16 == is_global);
        if (!test::is_of_test_all() && !is_of_part) continue;
        const Result none = run(model, dtype, options(scope, 7, {}), tokens, documents);
        for (int bits = 1; bits < 16; ++bits) {
          const Result some = run(model, dtype, options(scope, 7, subset(bits)), tokens, documents);
          EXPECT_TRUE(at::equal(some.gradient, none.gradient)) << at::toString(dtype) << " subset " << bits;
          EXPECT_TRUE(at::equal(some.parts.sums, none.parts.sums));
          ASSERT_EQ(some.parts.routers.defined(), model.is_moe());
          if (!model.is_moe()) continue;
          EXPECT_TRUE(at::equal(some.parts.routers.taken, none.parts.routers.taken)) << "subset " << bits;
          EXPECT_TRUE(at::equal(some.parts.routers.entropy_sum, none.parts.routers.entropy_sum)) << "subset " << bits;
        }
        if (!model.is_moe()) break;  // there is no balancing loss whose scope could matter
      }
    }
  }
}

TEST_P(RecomputeTest, ChoicesAreCountedOnce) {
  const ModelConfig model = tiny(GetParam());
  if (!model.is_moe()) GTEST_SKIP() << "a dense family has no choices";
  const Tensor tokens = at::randint(0, 50, {2, 24}, at::kLong);
  for (int bits = 0; bits < 16; ++bits) {
    const Result result = run(model, at::kFloat, options(AuxScope::kSequence, 7, subset(bits)), tokens, {});
    const int64_t microbatches = 2;
    EXPECT_EQ(result.parts.routers.taken.sum().item<int64_t>(),
              microbatches * tokens.numel() * model.num_experts_per_tok * model.num_sparse_layers());
  }
}

TEST_P(RecomputeTest, EachKindLowersThePeakOfMemoryAndLayerMoreThanAnyOther) {
  if (!ops::install_caching_cpu_allocator()) GTEST_SKIP() << "addresses are limited here (ulimit -v)";
  at::manual_seed(2);
  const bool is_whole = test::is_of_test_all();
  const int64_t length = is_whole ? 512 : 128;
  const Tensor tokens = at::randint(0, 50, {2, length}, at::kLong);
  ModelConfig model = tiny(GetParam(), 64);
  model.num_hidden_layers = 6;
  const auto peak = [&](const RecomputeKinds& kinds) {
    const auto train = [&] {
      run(model, at::kFloat, options(AuxScope::kSequence, 64, kinds), tokens, {}, is_whole ? 2 : 1);
    };
    train();  // the library's own buffers, which it keeps
    ops::reset_peak_cpu_memory();
    const size_t before = ops::cpu_memory().in_use_bytes;
    train();
    return ops::cpu_memory().peak_in_use_bytes - before;
  };
  // The memory of one tensor [tokens, hidden] in every layer except the one that backward computes.
  const size_t stream = static_cast<size_t>(tokens.numel()) * 64 * sizeof(float) * 5;
  const size_t none = peak({}), norm = peak({.norm = true}), attention = peak({.attention = true}),
               moe = peak({.moe = true}), three = peak(subset(7)), layer = peak({.layer = true});
  if (!find_family(model.family)->names.attention_norm.empty()) {
    EXPECT_LT(norm, none - 3 * stream / 2);  // two normed streams, less what is computed again at the peak
  }
  EXPECT_LT(attention, none - 3 * stream);
  EXPECT_LT(moe, none - stream);
  EXPECT_LT(three, std::min({norm, attention, moe}) - stream);
  EXPECT_LT(layer, std::min({norm, attention, moe}));
}

}  // namespace
}  // namespace athanor::recompute_test

#include "model/decoder.h"

#include <gtest/gtest.h>

#include "config/families.h"
#include "model/initialize.h"
#include "model/testing/tiny_models.h"
#include "ops/tiles.h"
#include "parallel/loss_sum.h"

namespace athanor::decoder_test {
namespace {

struct Fixture {
  explicit Fixture(const std::string& family, DecoderOptions options = {.loss_chunk_tokens = 7})
      : model(tiny_model(family)), parameters(make_bucket_entries(model), at::kFloat, ParameterStore::Use::kTraining),
        decoder(model, parameters, std::move(options)) {
    initialize_parameters(model, 1, parameters);
  }

  LossParts run(const Tensor& tokens, double sequences) {
    Labels labels;
    labels.targets = at::full_like(tokens, -100);
    labels.targets.narrow(1, 0, tokens.size(1) - 1).copy_(tokens.narrow(1, 1, tokens.size(1) - 1));
    labels.loss_scale = 1 / (sequences * static_cast<double>(tokens.size(1) - 1));
    labels.aux_scale = 0.01 / (2 * sequences);
    labels.z_scale = 0.001 / (2 * sequences * static_cast<double>(tokens.size(1)));
    decoder.forward(0, tokens, &labels);
    decoder.backward(0, {}, nullptr);
    return decoder.take_parts(0);
  }

  ModelConfig model;
  ParameterStore parameters;
  Decoder decoder;
};

class DecoderTest : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Families, DecoderTest, testing::ValuesIn(family_names()),
                         [](const auto& instance) { return instance.param; });

TEST_P(DecoderTest, MicrobatchesAddUpToTheBatch) {
  at::manual_seed(3);
  const Tensor tokens = at::randint(0, 50, {4, 12}, at::kLong);
  Fixture whole(GetParam()), cut(GetParam());
  LossParts of_parts;
  for (int64_t b = 0; b < 4; ++b) of_parts += cut.run(tokens.narrow(0, b, 1), 4);
  const LossNumbers together = numbers_of(whole.run(tokens, 4)), apart = numbers_of(of_parts);
  EXPECT_NEAR(together.loss_sum, apart.loss_sum, 1e-6 * together.loss_sum);
  EXPECT_EQ(together.num_targets, apart.num_targets);
  EXPECT_NEAR(together.aux_sum, apart.aux_sum, 1e-5 * std::abs(together.aux_sum));
  if (whole.model.is_moe()) {
    EXPECT_TRUE(at::equal(together.routers.taken, apart.routers.taken));
  }
  const Tensor difference = (whole.parameters.grad() - cut.parameters.grad()).abs().max();
  // Gradients are sums over 48 tokens: 48 · 2^-24 of the largest, and as much again for the layers below.
  EXPECT_LT(difference.item<double>(), 96 * std::ldexp(whole.parameters.grad().abs().max().item<double>(), -24));
}

// Texts that are begun together and then continued token by token: their logits after each token.
class Continued {
 public:
  Continued(const Fixture& f, std::vector<Tensor> texts, const std::vector<int64_t>& begun)
      : f_(f), texts_(std::move(texts)), caches_(f.decoder.make_caches(std::ssize(texts_), 16)),
        logits_(texts_.size()) {
    NewTokens tokens;
    std::vector<Tensor> ids;
    for (size_t r = 0; r < texts_.size(); ++r) {
      tokens.slots.push_back(static_cast<int64_t>(r));
      tokens.lengths.push_back(begun[r]);
      tokens.past.push_back(0);
      ids.push_back(texts_[r].narrow(0, 0, begun[r]));
    }
    pass(at::cat(ids), tokens);
    lengths_ = begun;
  }

  void go_on() {
    NewTokens tokens;
    std::vector<Tensor> ids;
    for (size_t r = 0; r < texts_.size(); ++r) {
      tokens.slots.push_back(static_cast<int64_t>(r));
      tokens.lengths.push_back(1);
      tokens.past.push_back(lengths_[r]);
      ids.push_back(texts_[r].narrow(0, lengths_[r]++, 1));
    }
    pass(at::cat(ids), tokens);
  }

  Tensor logits(size_t text) const { return at::stack(logits_[text]); }

 private:
  void pass(const Tensor& ids, const NewTokens& tokens) {
    const Tensor logits = f_.decoder.forward_cached(ids.unsqueeze(0), tokens, caches_);
    for (size_t r = 0; r < texts_.size(); ++r) logits_[r].push_back(logits[static_cast<int64_t>(r)]);
  }

  const Fixture& f_;
  std::vector<Tensor> texts_;
  std::vector<KvCache> caches_;
  std::vector<std::vector<Tensor>> logits_;
  std::vector<int64_t> lengths_;
};

std::vector<Tensor> some_texts(size_t count) {
  at::manual_seed(4);
  std::vector<Tensor> texts;
  for (size_t r = 0; r < count; ++r) texts.push_back(at::randint(0, 50, {16}, at::kLong));
  return texts;
}

TEST_P(DecoderTest, CachedLogitsOfTextsOfDifferentLengthsEqualThoseOfEachWholeText) {
  const Fixture f(GetParam());
  const auto texts = some_texts(3);
  const std::vector<int64_t> begun = {5, 1, 9};
  Continued batch(f, texts, begun);
  for (int i = 0; i < 6; ++i) batch.go_on();
  for (size_t r = 0; r < texts.size(); ++r) {
    const Tensor whole = f.decoder.logits(texts[r].narrow(0, 0, begun[r] + 6).unsqueeze(0))[0];
    EXPECT_TRUE(at::allclose(batch.logits(r), whole.narrow(0, begun[r] - 1, 7), 1e-4, 1e-5)) << r;
  }
}

// 40 texts are more rows than the library's kernels for few rows would get, and more tokens than a tile.
TEST_P(DecoderTest, OnTilesNoBitsOfATextDependOnTheOthersOfItsBatch) {
  const Fixture f(GetParam());
  if (!ops::multiplies_on_tiles(f.parameters.compute())) GTEST_SKIP() << "this CPU has no tiles";
  const auto texts = some_texts(40);
  std::vector<int64_t> begun;
  for (int64_t r = 0; r < 40; ++r) begun.push_back(1 + r % 9);
  Continued batch(f, texts, begun);
  for (int i = 0; i < 3; ++i) batch.go_on();
  for (const size_t r : {0, 1, 8, 39}) {
    Continued alone(f, {texts[r]}, {begun[r]});
    for (int i = 0; i < 3; ++i) alone.go_on();
    EXPECT_TRUE(at::equal(alone.logits(0), batch.logits(r))) << r;
  }
}

TEST_P(DecoderTest, ScoresAreTheLossesOfTrainingAndLeaveNoTrace) {
  at::manual_seed(5);
  const Tensor tokens = at::randint(0, 50, {2, 9}, at::kLong);
  Fixture f(GetParam());
  Labels labels;
  labels.targets = tokens;
  const TokenScores scores = f.decoder.score(tokens, &labels);
  EXPECT_EQ(f.parameters.grad().abs().max().item<float>(), 0.0f);
  f.decoder.forward(0, tokens, &labels);
  f.decoder.backward(0, {}, nullptr);
  const double loss = numbers_of(f.decoder.take_parts(0)).loss_sum;
  EXPECT_NEAR(-scores.log_probability.sum(at::kDouble).item<double>(), loss, 1e-6 * loss);
}

TEST_P(DecoderTest, TwoRunsGiveTheSameBits) {
  at::manual_seed(6);
  const Tensor tokens = at::randint(0, 50, {4, 16}, at::kLong);
  Fixture a(GetParam()), b(GetParam());
  EXPECT_EQ(numbers_of(a.run(tokens, 4)).loss_sum, numbers_of(b.run(tokens, 4)).loss_sum);
  EXPECT_TRUE(at::equal(a.parameters.grad(), b.parameters.grad()));
}

TEST_P(DecoderTest, MoreTokensAtOnceThanFp32CountsAreRefused) {
  Fixture f(GetParam());
  f.decoder.expect(1 << 10, 1 << 14);
  EXPECT_THROW(f.decoder.expect((1 << 10) + 1, 1 << 14), ConfigError);
  EXPECT_THROW(f.decoder.expect(int64_t{1} << 62, 2), ConfigError);
}

TEST(Initialize, DependsOnSeedAndNameAndNotOnThreads) {
  Fixture a("olmoe"), b("olmoe");
  at::set_num_threads(1);
  initialize_parameters(b.model, 1, b.parameters);
  at::set_num_threads(2);
  EXPECT_TRUE(at::equal(a.parameters.compute(), b.parameters.compute()));
  initialize_parameters(b.model, 2, b.parameters);
  EXPECT_FALSE(at::equal(a.parameters.compute(), b.parameters.compute()));
  EXPECT_EQ(a.parameters.master_copy("model.norm.weight").min().item<float>(), 1.0f);
}

TEST(Initialize, WeightsHaveTheDeviationThatTheConfigurationSays) {
  Fixture f("olmoe");
  const Tensor weight = f.parameters.master_copy("model.layers.0.mlp.experts.gate_proj.weight");
  const double n = static_cast<double>(weight.numel()), deviation = weight.std().item<double>();
  EXPECT_NEAR(deviation, 0.1, 5 * 0.1 / std::sqrt(2 * n));  // five standard errors
}

}  // namespace
}  // namespace athanor::decoder_test

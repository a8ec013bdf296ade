#include "ops/embedding.h"

#include "ops/testing/op_testing.h"

namespace athanor::ops::embedding_test {
namespace {

using namespace test;

Tensor some_tokens(at::IntArrayRef shape, int64_t vocab) {
  return at::randint(vocab, shape, at::detail::createCPUGenerator(7), at::kLong);
}

// Sixteenths below 8: fp32 and bf16 represent them and all their sums exactly, so that gradients can be compared bit by
// bit.
Tensor sixteenths(at::IntArrayRef shape, uint64_t seed, at::ScalarType dtype) {
  return at::randint(-127, 128, shape, at::detail::createCPUGenerator(seed), at::kFloat).div(16).to(dtype);
}

void backward(const Tensor& y, const Tensor& dy) { torch::autograd::backward({y}, {dy}); }

TEST(Embedding, ForwardCopiesRowsAndBackwardAddsThemUp) {
  for (const auto dtype : kComputeTypes) {
    for (const auto& [tokens, width] : std::vector<std::pair<int64_t, int64_t>>{{0, 4}, {1, 1}, {50, 17}, {200, 300}}) {
      const int64_t vocab = 23;  // fewer than tokens: many tokens share an id
      const Weight weight = weight_of(normal({vocab, width}, 1, dtype), 0.25);
      const Tensor ids = some_tokens({tokens}, vocab), dy = sixteenths({tokens, width}, 2, dtype);
      const Tensor y = embedding(ids, weight);
      expect_same_bits(y.detach(), weight.value.index({ids}), "y");
      backward(y, dy);
      const Tensor expected = at::full({vocab, width}, 0.25).index_add(0, ids, dy.to(at::kFloat));
      expect_same_bits(weight.grad, expected, fmt::format("{} tokens of {} {}", tokens, width, name_of(dtype)));
    }
  }
}

TEST(Embedding, AddsInTheOrderOfTheTokensWhateverTheThreads) {
  const Tensor ids = some_tokens({4, 250}, 3), dy = normal({4, 250, 400}, 2, at::kBFloat16);
  const Tensor value = normal({3, 400}, 1, at::kBFloat16);
  Tensor in_order = at::zeros({3, 400});
  for (int64_t t = 0; t < 1000; ++t) {
    in_order[ids.view({-1})[t].item<int64_t>()] += dy.view({-1, 400})[t].to(at::kFloat);
  }
  for (const int threads : {1, 2, 3}) {
    const Threads some(threads);
    const Weight weight = weight_of(value);
    backward(embedding(ids, weight), dy);
    expect_same_bits(weight.grad, in_order, fmt::format("{} threads", threads));
  }
}

TEST(Embedding, GradientsOfTwoCallsAddUpInTheBucket) {
  const Weight weight = weight_of(normal({5, 8}, 1));
  const Tensor ids = some_tokens({2, 6}, 5), dy = sixteenths({2, 6, 8}, 2, at::kFloat);
  backward(embedding(ids, weight), dy);
  const Tensor once = weight.grad.clone();
  backward(embedding(ids, weight), dy);
  expect_same_bits(weight.grad, once * 2, "grad");
}

TEST(Embedding, BeginsTheChainOfAutogradOnlyInTraining) {
  const Weight weight = weight_of(normal({5, 8}, 1));
  const Tensor ids = some_tokens({6}, 5);
  EXPECT_TRUE(embedding(ids, weight).requires_grad());
  EXPECT_FALSE(embedding(ids, {weight.value, Tensor()}).requires_grad());
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(embedding(ids, weight).requires_grad());
}

TEST(Embedding, RefusesATokenBeyondTheVocabulary) {
  const Weight weight = weight_of(normal({5, 8}, 1));
  EXPECT_ANY_THROW(embedding(at::full({1}, 5, at::kLong), weight));
}

}  // namespace
}  // namespace athanor::ops::embedding_test

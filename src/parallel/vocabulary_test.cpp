// Compares a vocabulary whose rows tensor ranks share, with threads as ranks, with one table.

#include "parallel/vocabulary.h"

#include <gtest/gtest.h>

#include "kernels/cross_entropy.h"
#include "ops/embedding.h"
#include "ops/testing/op_testing.h"
#include "parallel/testing/rank_results.h"

namespace athanor::vocabulary_test {
namespace {

using ops::test::kComputeTypes;
using ops::test::normal;

constexpr int64_t kVocab = 50, kWidth = 24, kBatch = 2, kSeqLen = 12, kTokens = kBatch * kSeqLen, kChunk = 10;
constexpr double kGradScale = 0.125;  // exact in any type

struct Case {
  int ranks;  // 3 and 4 do not divide the vocabulary
  bool sequence;
  at::ScalarType dtype;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const int ranks : {2, 3, 4}) {
    for (const auto dtype : kComputeTypes) {
      all.push_back({ranks, false, dtype});
      all.push_back({ranks, true, dtype});
    }
  }
  return all;
}

std::string name_of(const Case& c) {
  return std::to_string(c.ranks) + " ranks, " + ops::test::name_of(c.dtype) + (c.sequence ? ", sequence" : "");
}

using Results = std::vector<std::vector<Tensor>>;
template <class F>
Results on_ranks(const Case& c, F body) {
  return results_of_ranks(c.ranks, [&](comm::World& world) { return body(TensorRanks{&world.all(), c.sequence}); });
}

Tensor tokens() { return at::arange(kTokens).mul(17).remainder(kVocab).view({kBatch, kSeqLen}); }

Tensor targets() {
  Tensor ids = at::arange(kTokens).mul(29).add(3).remainder(kVocab);
  ids[4] = ids[5] = ids[23] = kernels::kNoTarget;
  ids[0] = 0;
  ids[1] = kVocab - 1;
  return ids;
}

Weight rows_of(const Tensor& whole, const TensorRanks& ranks) {
  const int64_t first = first_vocabulary_row(kVocab, ranks.rank(), ranks.size());
  const int64_t end = first_vocabulary_row(kVocab, ranks.rank() + 1, ranks.size());
  const Tensor value = whole.narrow(0, first, end - first).clone();
  return {value, at::zeros(value.sizes(), at::kFloat)};
}

Tensor joined(const Results& results, size_t item) {
  std::vector<Tensor> parts;
  for (const auto& result : results) parts.push_back(result[item]);
  return at::cat(parts);
}

TEST(Vocabulary, EachRowHasOneRank) {
  for (const int ranks : {1, 2, 3, 4, 7}) {
    EXPECT_EQ(first_vocabulary_row(kVocab, 0, ranks), 0);
    EXPECT_EQ(first_vocabulary_row(kVocab, ranks, ranks), kVocab);
  }
  EXPECT_EQ(first_vocabulary_row(kVocab, 1, 3), 16);
}

TEST(Vocabulary, AnEmbeddingOfSharedRowsHasTheBitsOfOneTable) {
  for (const Case& c : cases()) {
    const Tensor table = normal({kVocab, kWidth}, 1, c.dtype), dy = normal({kBatch, kSeqLen, kWidth}, 2, c.dtype);
    const Weight whole{table, at::zeros({kVocab, kWidth}, at::kFloat)};
    const Tensor expected = ops::embedding(tokens(), whole);
    torch::autograd::backward({expected}, {dy});

    const auto own = [&](const Tensor& x, int rank) {
      const int64_t count = kTokens / c.ranks;
      return c.sequence ? x.reshape({1, kTokens, kWidth}).narrow(1, rank * count, count) : x;
    };
    const auto results = on_ranks(c, [&](const TensorRanks& ranks) -> std::vector<Tensor> {
      const Weight weight = rows_of(table, ranks);
      const Tensor y = vocabulary_embedding(tokens(), weight, kVocab, ranks);
      torch::autograd::backward({y}, {own(dy, ranks.rank()).contiguous()});
      return {y.detach(), weight.grad};
    });
    for (int r = 0; r < c.ranks; ++r) {
      ops::test::expect_same_bits(results[static_cast<size_t>(r)][0], own(expected, r), name_of(c));
    }
    ops::test::expect_same_bits(joined(results, 1), whole.grad, name_of(c) + " gradient");
  }
}

struct HeadInputs {
  Tensor x, weight;
};
HeadInputs inputs(at::ScalarType dtype) {
  return {normal({kTokens, kWidth}, 3, dtype), normal({kVocab, kWidth}, 4, dtype)};
}

// The loss of one head in fp64, with the softmax from which its gradients follow.
struct Exact {
  Tensor losses, softmax, has_target, one_hot;
};
Exact exact_of(const HeadInputs& in) {
  const Tensor logits = at::matmul(in.x.to(at::kDouble), in.weight.to(at::kDouble).t());
  const Tensor has_target = targets() != kernels::kNoTarget, index = targets().clamp_min(0).unsqueeze(1);
  const Tensor log_probs = at::log_softmax(logits, 1);
  return {at::where(has_target, -log_probs.gather(1, index).squeeze(1), 0.0), log_probs.exp(), has_target.unsqueeze(1),
          at::zeros_like(logits).scatter_(1, index, 1.0)};
}

// The error of a logit: a product of kWidth terms, stored. A loss may be off by two of them (the target's, and those in
// the sum together), and a probability by as much relative to itself.
double logit_error(const HeadInputs& in) {
  const Tensor norm = at::matmul(in.x.to(at::kDouble).abs(), in.weight.to(at::kDouble).abs().t());
  return ops::error_bound(norm.max().item<double>(), in.x.scalar_type(), kWidth);
}

TEST(Vocabulary, TheLossOfSharedRowsAndItsGradientsAreThoseOfOneHead) {
  for (const Case& c : cases()) {
    const HeadInputs in = inputs(c.dtype);
    const Exact exact = exact_of(in);
    const auto results = on_ranks(c, [&](const TensorRanks& ranks) -> std::vector<Tensor> {
      const Weight weight = rows_of(in.weight, ranks);
      const Tensor x = in.x.clone().requires_grad_();
      const Tensor loss = vocabulary_cross_entropy(x, weight, targets(), kVocab, kGradScale, kChunk, ranks);
      torch::autograd::backward({loss});
      return {loss.detach(), x.grad(), weight.grad};
    });
    // The fp32 steps between logits and losses: sums of kVocab terms, an exponential and a logarithm of 2 ULP each.
    const double relative = 2 * logit_error(in) + ops::error_bound(1, at::kFloat, kVocab + 8);
    const double loss = exact.losses.sum().item<double>(), peak = exact.losses.max().item<double>();
    for (const auto& result : results) {
      ops::test::expect_same_bits(result[0], results[0][0], name_of(c));
      EXPECT_NEAR(result[0].item<double>(), loss, kTokens * relative * std::max(peak, 1.0)) << name_of(c);
    }
    const Tensor dlogits = at::where(exact.has_target, (exact.softmax - exact.one_hot) * kGradScale, 0.0);
    const Tensor dlogits_error =
        at::where(exact.has_target, (exact.softmax * relative + ops::unit_roundoff(c.dtype)) * kGradScale, 0.0);
    const Tensor w = in.weight.to(at::kDouble), x = in.x.to(at::kDouble);
    Tensor dx = at::zeros({kTokens, kWidth}, at::kDouble);
    for (const auto& result : results) dx += result[1].to(at::kDouble);
    const auto product_error = [&](const Tensor& a, const Tensor& a_error, const Tensor& b, int64_t terms, auto dtype) {
      return at::matmul(a_error, b.abs()) + ops::error_bound(at::matmul(a.abs() + a_error, b.abs()), dtype, terms);
    };
    ops::test::expect_within(dx, at::matmul(dlogits, w), product_error(dlogits, dlogits_error, w, kVocab, c.dtype),
                             name_of(c) + " dx");
    // If the library multiplies bf16, the product of a chunk is rounded before it is added.
    ops::test::expect_within(joined(results, 2), at::matmul(dlogits.t(), x),
                             product_error(dlogits.t(), dlogits_error.t(), x, kTokens, c.dtype), name_of(c) + " dw");
  }
}

TEST(Vocabulary, ScoresOfSharedRowsAreThoseOfOneHead) {
  for (const Case& c : cases()) {
    HeadInputs in = inputs(c.dtype);
    in.weight[kVocab - 1].copy_(in.weight[2]);  // two ids with the same logit, one on the first rank and one on the
                                                // last
    in.weight[kVocab - 3].copy_(in.weight[kVocab - 2]);
    Tensor ids = targets();
    const Tensor greedy = at::matmul(in.x.to(at::kFloat), in.weight.to(at::kFloat).t()).argmax(1);
    for (int64_t t = 0; t < kTokens; t += 2) ids[t] = greedy[t];
    in.x[6].copy_(in.weight[2] * 4), in.x[7].copy_(in.weight[2] * 4), ids[6] = 2, ids[7] = kVocab - 1;
    in.x[8].copy_(in.weight[kVocab - 2] * 4), in.x[9].copy_(in.weight[kVocab - 2] * 4);
    ids[8] = kVocab - 3, ids[9] = kVocab - 2;
    const ops::TokenLosses one = ops::token_losses(in.x, in.weight, ids, kTokens);
    ASSERT_TRUE(one.is_greedy[6].item<bool>() && !one.is_greedy[7].item<bool>());
    ASSERT_TRUE(one.is_greedy[8].item<bool>() && !one.is_greedy[9].item<bool>());
    const auto results = on_ranks(c, [&](const TensorRanks& ranks) -> std::vector<Tensor> {
      const auto losses = vocabulary_token_losses(in.x, rows_of(in.weight, ranks).value, ids, kVocab, kChunk, ranks);
      return {losses.loss, losses.is_greedy};
    });
    // Logits have the same bits; sums of kVocab terms have a different order.
    const Tensor bound = ops::error_bound(one.loss.abs() + 1, at::kFloat, 2 * kVocab);
    for (const auto& result : results) {
      ops::test::expect_same_bits(result[0], results[0][0], name_of(c));
      ops::test::expect_within(result[0], one.loss.to(at::kDouble), bound, name_of(c));
      EXPECT_TRUE(at::equal(result[1], one.is_greedy)) << name_of(c);
    }
  }
}

TEST(Vocabulary, TheLossSendsTwoSmallAllReducesForEachChunkAndNothingInBackward) {
  const Case c{3, false, at::kFloat};
  const HeadInputs in = inputs(c.dtype);
  std::vector<comm::Traffic> forward(3), backward(3);
  on_ranks(c, [&](const TensorRanks& ranks) -> std::vector<Tensor> {
    const auto rank = static_cast<size_t>(ranks.rank());
    const Weight weight = rows_of(in.weight, ranks);
    const Tensor x = in.x.clone().requires_grad_();
    ranks.group->reset_traffic();
    const Tensor loss = vocabulary_cross_entropy(x, weight, targets(), kVocab, kGradScale, kChunk, ranks);
    forward[rank] = ranks.group->traffic();
    ranks.group->reset_traffic();
    torch::autograd::backward({loss});
    backward[rank] = ranks.group->traffic();
    return {};
  });
  constexpr int64_t kChunks = (kTokens + kChunk - 1) / kChunk;
  for (size_t r = 0; r < 3; ++r) {
    EXPECT_EQ(forward[r].calls, 2 * kChunks);
    EXPECT_EQ(forward[r].calls_of.at(Collective::kAllReduce), 2 * kChunks);
    EXPECT_EQ(backward[r].calls, 0);
    // Each token has three values; small tensors may go up and down a tree of two levels (comm/communicator.h).
    EXPECT_LE(forward[r].bytes(), 3 * kTokens * 4 * 2 * 2);
  }
}

TEST(Vocabulary, ATargetBeyondTheWholeVocabularyIsNamed) {
  const Case c{2, false, at::kFloat};
  const HeadInputs in = inputs(c.dtype);
  Tensor ids = targets();
  ids[7] = kVocab;
  on_ranks(c, [&](const TensorRanks& ranks) -> std::vector<Tensor> {
    EXPECT_THROW(vocabulary_token_losses(in.x, rows_of(in.weight, ranks).value, ids, kVocab, kChunk, ranks), DataError);
    return {};
  });
}

}  // namespace
}  // namespace athanor::vocabulary_test

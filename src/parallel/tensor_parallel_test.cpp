// Tests how activations enter and leave what tensor ranks share, with threads as ranks.

#include "parallel/tensor_parallel.h"

#include <gtest/gtest.h>

#include "ops/testing/op_testing.h"
#include "parallel/testing/rank_results.h"

namespace athanor::tensor_parallel_test {
namespace {

using ops::test::kComputeTypes;
using ops::test::normal;

constexpr int64_t kBatch = 2, kSeqLen = 12, kWidth = 5, kTokens = kBatch * kSeqLen;

struct Case {
  int ranks;
  bool sequence;
  at::ScalarType dtype;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const int ranks : {2, 3, 4}) {
    for (const bool sequence : {false, true}) {
      for (const auto dtype : kComputeTypes) all.push_back({ranks, sequence, dtype});
    }
  }
  return all;
}

std::string name_of(const Case& c) {
  return std::to_string(c.ranks) + " ranks, " + ops::test::name_of(c.dtype) + (c.sequence ? ", sequence" : "");
}

// Returns the result of each rank's `body`, by rank.
template <class F>
std::vector<std::vector<Tensor>> on_ranks(const Case& c, F body) {
  return results_of_ranks(c.ranks, [&](comm::World& world) { return body(TensorRanks{&world.all(), c.sequence}); });
}

// Returns a rank's numbers, which the other ranks can compute too.
Tensor part_of(int rank, uint64_t seed, at::ScalarType dtype) {
  return normal({kBatch, kSeqLen, kWidth}, seed + static_cast<uint64_t>(rank), dtype);
}

// The sum along the tree over ranks, rounded once (comm/communicator.h).
Tensor sum_of(const std::vector<Tensor>& terms, size_t low, size_t high) {
  if (high - low == 1) return terms[low].to(at::kFloat);
  size_t half = 1;
  while (half * 2 < high - low) half *= 2;
  return sum_of(terms, low, low + half) + sum_of(terms, low + half, high);
}
Tensor sum_of_parts(const Case& c, uint64_t seed) {
  std::vector<Tensor> terms;
  for (int r = 0; r < c.ranks; ++r) terms.push_back(part_of(r, seed, c.dtype));
  return sum_of(terms, 0, terms.size()).to(c.dtype);
}

// Returns the tokens that a rank holds between matrices.
Tensor held_by(int rank, const Case& c, const Tensor& x) {
  if (!c.sequence) return x;
  const int64_t own = kTokens / c.ranks;
  return x.reshape({kTokens, kWidth}).narrow(0, rank * own, own).unsqueeze(0);
}

TEST(TensorParallel, EveryReaderGetsAllTokensAndPartsOfTheirGradientsAreAddedUpOnce) {
  for (const Case& c : cases()) {
    const Tensor x = normal({kBatch, kSeqLen, kWidth}, 1, c.dtype), dwhole = normal(x.sizes(), 2, c.dtype);
    const auto results = on_ranks(c, [&](const TensorRanks& ranks) -> std::vector<Tensor> {
      const Tensor in = held_by(ranks.rank(), c, x).clone().requires_grad_();
      const TensorParallelInput read = enter_tensor_parallel(in, ranks, kBatch);
      torch::autograd::backward({read.replicated, read.partitioned},
                                {dwhole.clone(), part_of(ranks.rank(), 10, c.dtype)});
      return {read.replicated.detach(), read.partitioned.detach(), in.grad()};
    });
    const Tensor dx = sum_of_parts(c, 10) + dwhole;
    for (int r = 0; r < c.ranks; ++r) {
      const auto& result = results[static_cast<size_t>(r)];
      ops::test::expect_same_bits(result[0], x, name_of(c) + " replicated");
      ops::test::expect_same_bits(result[1], x, name_of(c) + " partitioned");
      ops::test::expect_same_bits(result[2], held_by(r, c, dx), name_of(c) + " gradient");
    }
  }
}

TEST(TensorParallel, AGradientThatOneReaderAloneGivesIsTheWholeGradient) {
  for (const Case& c : cases()) {
    const Tensor x = normal({kBatch, kSeqLen, kWidth}, 1, c.dtype), dwhole = normal(x.sizes(), 2, c.dtype);
    const auto results = on_ranks(c, [&](const TensorRanks& ranks) -> std::vector<Tensor> {
      const Tensor first = held_by(ranks.rank(), c, x).clone().requires_grad_(), second = first.detach().clone();
      second.requires_grad_();
      torch::autograd::backward({enter_tensor_parallel(first, ranks, kBatch).replicated}, {dwhole.clone()});
      torch::autograd::backward({enter_tensor_parallel(second, ranks, kBatch).partitioned},
                                {part_of(ranks.rank(), 10, c.dtype)});
      return {first.grad(), second.grad()};
    });
    for (int r = 0; r < c.ranks; ++r) {
      const auto& result = results[static_cast<size_t>(r)];
      ops::test::expect_same_bits(result[0], held_by(r, c, dwhole), name_of(c) + " of replicated");
      ops::test::expect_same_bits(result[1], held_by(r, c, sum_of_parts(c, 10)), name_of(c) + " of partitioned");
    }
  }
}

TEST(TensorParallel, PartsBecomeTheirSumAndEachGetsItsWholeGradient) {
  for (const Case& c : cases()) {
    const Tensor dsum = normal({kBatch, kSeqLen, kWidth}, 3, c.dtype);
    const auto results = on_ranks(c, [&](const TensorRanks& ranks) -> std::vector<Tensor> {
      const Tensor part = part_of(ranks.rank(), 20, c.dtype).requires_grad_();
      const Tensor sum = leave_tensor_parallel(part * 1, ranks);
      torch::autograd::backward({sum}, {held_by(ranks.rank(), c, dsum).clone()});
      return {sum.detach(), part.grad()};
    });
    for (int r = 0; r < c.ranks; ++r) {
      const auto& result = results[static_cast<size_t>(r)];
      ops::test::expect_same_bits(result[0], held_by(r, c, sum_of_parts(c, 20)), name_of(c) + " sum");
      ops::test::expect_same_bits(result[1], dsum, name_of(c) + " gradient");
    }
  }
}

TEST(TensorParallel, AValueThatAllHaveAlikeGetsTheSumOfItsGradients) {
  for (const Case& c : cases()) {
    const auto results = on_ranks(c, [&](const TensorRanks& ranks) -> std::vector<Tensor> {
      const Tensor x = normal({kBatch, kSeqLen, kWidth}, 4, c.dtype).requires_grad_();
      const Tensor y = sum_gradient(x, ranks);
      torch::autograd::backward({y}, {part_of(ranks.rank(), 30, c.dtype)});
      return {y.detach(), x.grad()};
    });
    for (const auto& result : results) {
      ops::test::expect_same_bits(result[0], normal({kBatch, kSeqLen, kWidth}, 4, c.dtype), name_of(c));
      ops::test::expect_same_bits(result[1], sum_of_parts(c, 30), name_of(c));
    }
  }
}

// A gradient that has another holder is summed in a copy of it.
TEST(TensorParallel, AGradientThatOthersReadIsLeftAsItWas) {
  const Case c{2, false, at::kFloat};
  const auto results = on_ranks(c, [&](const TensorRanks& ranks) -> std::vector<Tensor> {
    const Tensor x = at::ones({1, 2, 3}).requires_grad_(), dy = at::ones({1, 2, 3});
    torch::autograd::backward({enter_tensor_parallel(x, ranks, 1).partitioned}, {dy});
    torch::autograd::backward({sum_gradient(x, ranks)}, {dy});
    // The gradient of a sum is one tensor for both of its terms, whichever reads it first.
    const auto beside = [&](bool first) {
      const Tensor other = at::ones({1, 2, 3}).requires_grad_(), kept = other * 1;
      const Tensor partitioned = enter_tensor_parallel(x, ranks, 1).partitioned;
      torch::autograd::backward({(first ? kept + partitioned : partitioned + kept) * 1}, {dy.clone()});
      return other.grad();
    };
    return {dy, beside(true), beside(false)};
  });
  for (const auto& result : results) {
    for (const Tensor& grad : result) EXPECT_TRUE(at::equal(grad, at::ones({1, 2, 3})));
  }
}

TEST(TensorParallel, AGradientThatNobodyElseReadsIsSummedWhereItLies) {
  on_ranks({2, false, at::kFloat}, [&](const TensorRanks& ranks) -> std::vector<Tensor> {
    const Tensor x = at::ones({1, 2, 3}).requires_grad_(), in = x * 1;
    const Tensor partitioned = enter_tensor_parallel(in, ranks, 1).partitioned;
    const void *before = nullptr, *after = nullptr;
    partitioned.register_hook([&](const Tensor& grad) { before = grad.const_data_ptr(); });
    in.register_hook([&](const Tensor& grad) { after = grad.const_data_ptr(); });
    torch::autograd::backward({partitioned * 2}, {at::ones({1, 2, 3})});
    EXPECT_EQ(before, after);
    return {};
  });
}

TEST(TensorParallel, SendsWhatItsHeaderSays) {
  using Calls = std::map<Collective, int64_t>;
  for (const Case& c : cases()) {
    std::vector<std::vector<comm::Traffic>> sent(static_cast<size_t>(c.ranks));
    on_ranks(c, [&](const TensorRanks& ranks) -> std::vector<Tensor> {
      comm::Communicator& group = *ranks.group;
      const auto count = [&] {
        sent[static_cast<size_t>(ranks.rank())].push_back(group.traffic());
        group.reset_traffic();
      };
      const Tensor x = held_by(ranks.rank(), c, normal({kBatch, kSeqLen, kWidth}, 1, c.dtype)).clone();
      x.requires_grad_();
      group.reset_traffic();
      const Tensor read = enter_tensor_parallel(x, ranks, kBatch).partitioned;
      count();
      const Tensor left = leave_tensor_parallel(read * 1, ranks);
      count();
      torch::autograd::backward({left.sum()});
      count();
      return {};
    });
    const int64_t bytes = kTokens * kWidth * c10::elementSize(c.dtype), share = bytes * (c.ranks - 1) / c.ranks;
    for (const auto& of_rank : sent) {
      const auto &enter = of_rank[0], &leave = of_rank[1], &backward = of_rank[2];
      if (c.sequence) {
        EXPECT_EQ(enter.calls_of, (Calls{{Collective::kAllGather, 1}})) << name_of(c);
        EXPECT_EQ(leave.calls_of, (Calls{{Collective::kReduceScatter, 1}})) << name_of(c);
        EXPECT_EQ(backward.calls_of, (Calls{{Collective::kAllGather, 1}, {Collective::kReduceScatter, 1}}))
            << name_of(c);
        EXPECT_EQ(enter.bytes(), share) << name_of(c);
        EXPECT_EQ(leave.bytes(), share) << name_of(c);
        EXPECT_EQ(backward.bytes(), 2 * share) << name_of(c);
      } else {
        EXPECT_EQ(enter.calls_of, Calls{}) << name_of(c);
        EXPECT_EQ(leave.calls_of, (Calls{{Collective::kAllReduce, 1}})) << name_of(c);
        EXPECT_EQ(backward.calls_of, (Calls{{Collective::kAllReduce, 1}})) << name_of(c);
        EXPECT_EQ(leave.bytes(), backward.bytes()) << name_of(c);
      }
    }
  }
}

TEST(TensorParallel, OfOneRankItIsItsArgument) {
  const Tensor x = normal({1, 2, 3}, 1).requires_grad_();
  const TensorParallelInput read = enter_tensor_parallel(x, {}, 1);
  EXPECT_TRUE(read.replicated.is_same(x));
  EXPECT_TRUE(read.partitioned.is_same(x));
  EXPECT_TRUE(leave_tensor_parallel(x, {}).is_same(x));
  EXPECT_TRUE(sum_gradient(x, {}).is_same(x));
}

}  // namespace
}  // namespace athanor::tensor_parallel_test

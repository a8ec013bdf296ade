// Expert parallelism gives the bits of one process, except where a token's sum is cut into partial sums: in the form
// for the host, and in the one for devices, run here on CPU tensors.

#include "moe/dispatch.h"

#include "moe/testing/dispatch_case.h"
#include "ops/tiles.h"
#include "ops/tokens_per_rank.h"

namespace athanor::moe::dispatch_test {
namespace {

using namespace test;  // NOLINT

std::vector<DispatchOptions> every_way(int ranks) {
  std::vector<DispatchOptions> all;
  for (const auto& [chunks, in_flight] : {std::pair{1, 1}, {2, 1}, {5, 3}}) {
    all.push_back({DispatchKind::kAllGather, chunks, in_flight});
    all.push_back({DispatchKind::kAllToAll, chunks, in_flight});
    for (int inner = 1; inner <= ranks; inner *= 2) {  // a power of two: the same tree
      if (ranks % inner == 0) all.push_back({DispatchKind::kAllToAll2d, chunks, in_flight, inner});
    }
  }
  return all;
}

std::string name_of(const DispatchOptions& o) {
  return fmt::format("{} in {} chunks, {} in flight, {} ranks a node", word_of(o.kind), o.chunks, o.in_flight,
                     o.inner_ranks);
}

// If the library multiplies, a row's bits may depend on the number of rows in the product (docs/moe.md).
bool has_exact_rows() {
  return std::ranges::all_of(kComputeTypes, [](auto dtype) { return ops::multiplies_on_tiles(at::empty({1}, dtype)); });
}

enum class Form { kHost, kDevice };

class DispatchIn : public ::testing::TestWithParam<Form> {
 protected:
  bool on_device() const { return GetParam() == Form::kDevice; }
  void expect_the_definition(DispatchCase c) const;
};
INSTANTIATE_TEST_SUITE_P(, DispatchIn, ::testing::Values(Form::kHost, Form::kDevice),
                         [](const auto& form) { return form.param == Form::kHost ? "HostForm" : "DeviceForm"; });

void DispatchIn::expect_the_definition(DispatchCase c) const {
  c.device_form = on_device();
  // The products of the form for devices are our own loops here: a width of 20 or 12 is not the library's.
  if (!on_device() && !has_exact_rows())
    GTEST_SKIP() << "matrix products are the library's here: bits depend on chunks";
  const auto ways = every_way(c.ranks());
  for (const auto dtype : kComputeTypes) {
    c.dtype = dtype;
    const auto expected = expected_of(c);
    const auto results = run_case(c, ways);
    for (size_t i = 0; i < ways.size(); ++i) expect_same(results[i], expected, name_of(ways[i]));
  }
}

TEST_P(DispatchIn, EachKindAndChunkingHasTheBitsOfTheDefinitionOverTwoRanks) {
  expect_the_definition({.tokens = {17, 17}, .num_experts = 8, .k = 3});
}

TEST_P(DispatchIn, EachKindAndChunkingHasTheBitsOfTheDefinitionOverFourRanks) {
  expect_the_definition({.tokens = {13, 13, 13, 13}, .num_experts = 8, .k = 4});
}

TEST_P(DispatchIn, BiasesAndAnotherUnitThanSwiGluHaveTheBitsOfTheDefinition) {
  expect_the_definition({.tokens = {11, 6}, .num_experts = 4, .k = 3, .gpt_oss = true});
}

TEST_P(DispatchIn, AnOddNumberOfRanksKeepsTheTree) {
  expect_the_definition({.tokens = {7, 9, 8}, .num_experts = 9, .k = 5});
}

TEST_P(DispatchIn, RanksWithoutTokensOrWithFewerTakePart) {
  expect_the_definition({.tokens = {0, 11, 1, 4}, .num_experts = 8, .k = 2});
  expect_the_definition({.tokens = {0, 0}, .num_experts = 4, .k = 2});
}

TEST_P(DispatchIn, OneExpertARankOneChoiceAndOneRank) {
  expect_the_definition({.tokens = {6, 5, 4, 3, 2}, .num_experts = 5, .k = 1});
  expect_the_definition({.tokens = {6}, .num_experts = 5, .k = 2});
}

TEST_P(DispatchIn, AllTokensToOneRankLeaveTheOthersWithoutAny) {
  expect_the_definition({.tokens = {9, 9, 9}, .num_experts = 9, .k = 2, .lowest = 3, .highest = 5});
}

TEST_P(DispatchIn, DroppedChoicesAndWeightsBeforeTheDownProjection) {
  expect_the_definition(
      {.tokens = {12, 10}, .num_experts = 6, .k = 3, .combine = CombineWeights::kBeforeDown, .drops = true});
}

// Compares with all experts in one process. Here a token's K rows are added in E parts, which are stored and then
// added: one more addition for each part, and a rounding to the type.
TEST(Dispatch, IsOneProcessUpToWhereATokensSumIsCut) {
  if (!has_exact_rows()) GTEST_SKIP() << "matrix products are the library's here: bits depend on chunks";
  for (const auto dtype : kComputeTypes) {
    const DispatchCase c{.tokens = {40, 30}, .num_experts = 8, .k = 4, .dtype = dtype};
    DispatchCase whole = c;
    const ops::ExpertWeights w = whole.experts(0, 8);
    const auto one = run(
        [&](const auto& in) {
          return ops::experts(in[0], in[1], at::cat({c.ids(0), c.ids(1)}), w, 0, 8);
        },
        {at::cat({c.x(0), c.x(1)}), at::cat({c.weights(0), c.weights(1)})}, at::cat({c.dy(0), c.dy(1)}));
    const auto two = run_case(c, {{DispatchKind::kAllToAll, 2}})[0];
    const auto expect_near = [&](const Tensor& actual, const Tensor& expected, const char* what) {
      // Each part is below the sum of its terms, which the largest results bound here within a factor of K · E.
      const double largest = expected.abs().max().item<double>() * 8;
      const Tensor bound = at::full(expected.sizes(), ops::error_bound(largest, dtype, 3), at::kDouble);
      expect_within(actual, expected.to(at::kDouble), bound, what);
    };
    expect_near(at::cat({two[0].y, two[1].y}), one.y, "y");
    expect_near(at::cat({two[0].dx, two[1].dx}), one.dx[0], "dx");
    expect_same_bits(at::cat({two[0].dweights, two[1].dweights}), one.dx[1], "dweights");
    for (size_t i = 0; i < 3; ++i)
      expect_same_bits(at::cat({two[0].grads[i], two[1].grads[i]}), buckets(w)[i], "weights");
  }
}

TEST_P(DispatchIn, MessagesThatArePaddedToTheMostRowsHaveTheSameBits) {
  if (!on_device()) GTEST_SKIP() << "the host pads nothing";
  expect_the_definition({.tokens = {13, 13, 13, 13}, .num_experts = 16, .k = 2, .drops = true, .is_bounded = true});
  expect_the_definition({.tokens = {40, 40}, .num_experts = 8, .k = 1, .is_bounded = true});
  expect_the_definition({.tokens = {9, 9, 9}, .num_experts = 9, .k = 2, .lowest = 3, .highest = 5, .is_bounded = true});
}

class TestAllDispatchIn : public DispatchIn {};
INSTANTIATE_TEST_SUITE_P(, TestAllDispatchIn, ::testing::Values(Form::kDevice),
                         [](const auto&) { return "DeviceForm"; });

TEST_P(TestAllDispatchIn, MessagesThatArePaddedToTheMostRowsHaveTheSameBitsWithTheOtherDrops) {
  expect_the_definition({.tokens = {13, 13, 13, 13}, .num_experts = 16, .k = 2, .is_bounded = true});
  expect_the_definition({.tokens = {40, 40}, .num_experts = 8, .k = 1, .drops = true, .is_bounded = true});
}

TEST_P(DispatchIn, EvaluatesToTheSameBitsAndKeepsNothing) {
  if (!on_device() && !has_exact_rows())
    GTEST_SKIP() << "matrix products are the library's here: bits depend on chunks";
  const DispatchCase c{.tokens = {9, 0, 5}, .num_experts = 6, .k = 2, .device_form = on_device()};
  const auto expected = expected_of(c);
  comm::run_ranks(3, [&](comm::World& world) {
    const at::NoGradGuard no_grad;
    const int rank = world.rank();
    for (DispatchOptions options : every_way(3)) {
      options.device_form = c.device_form;
      Dispatch dispatch(world.all(), options);
      const Tensor y = dispatch.experts(c.x(rank), c.weights(rank), c.ids(rank), c.experts(rank * 2, 2));
      expect_same_bits(y, expected[static_cast<size_t>(rank)].y, name_of(options));
      EXPECT_FALSE(y.requires_grad());
    }
  });
}

TEST(Dispatch, CountsTheTokensOfEachRankOnce) {
  // With 2 experts on each rank: rank 0 gets tokens 0 and 1, once each; rank 1 gets token 1; a dropped choice counts
  // nowhere.
  const Tensor ids = at::tensor(std::vector<int64_t>{0, 1, 1, 3, -1, ~int64_t{4}}, at::kLong).view({3, 2});
  EXPECT_TRUE(at::equal(ops::tokens_per_rank(ids, 2, 3), at::tensor(std::vector<int64_t>{2, 1, 0}, at::kLong)));
}

}  // namespace
}  // namespace athanor::moe::dispatch_test

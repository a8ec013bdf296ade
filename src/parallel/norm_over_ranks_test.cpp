// Compares a norm whose columns tensor ranks share, with threads as ranks, with a norm of the whole rows.

#include "parallel/norm_over_ranks.h"

#include <gtest/gtest.h>

#include "ops/norm.h"
#include "ops/testing/op_testing.h"
#include "parallel/testing/rank_results.h"

namespace athanor::norm_over_ranks_test {
namespace {

using ops::test::kComputeTypes;
using ops::test::normal;

constexpr int64_t kTokens = 130;  // more than two blocks of the weight's gradient
constexpr double kEps = 1e-5;

struct Case {
  int ranks, copies;  // copies of each key head
  at::ScalarType dtype;
  int64_t q_width() const { return 12L * ranks; }
  int64_t k_width() const { return 6L * ranks / copies; }
};

std::string name_of(const Case& c) {
  return std::to_string(c.ranks) + " ranks, " + std::to_string(c.copies) + " copies, " + ops::test::name_of(c.dtype);
}

struct Inputs {
  Tensor x, weight, dy;
};
Inputs inputs(int64_t width, uint64_t seed, at::ScalarType dtype) {
  return {normal({kTokens, width}, seed, dtype), normal({width}, seed + 1, dtype), normal({kTokens, width}, seed + 2)};
}

// The norm of whole rows in fp64, and its gradients.
struct Exact {
  Tensor y, dx, dw;
};
Exact exact_of(const Inputs& in) {
  const Tensor w = in.weight.to(at::kDouble).requires_grad_(), x = in.x.to(at::kDouble).requires_grad_();
  const Tensor y = ops::portable::rms_norm(x, w, kEps);
  torch::autograd::backward({y}, {in.dy.to(at::kDouble)});
  return {y.detach(), x.grad(), w.grad()};
}

// Returns for each rank: y, dx, dw of queries, then of keys.
std::vector<std::vector<Tensor>> run(const Case& c, const Inputs& q, const Inputs& k) {
  return results_of_ranks(c.ranks, [&](comm::World& world) {
    const int r = world.rank();
    const auto columns = [](const Tensor& x, int64_t part, int64_t parts) {
      const int64_t width = x.size(-1) / parts;
      return x.narrow(-1, part * width, width).contiguous();
    };
    const int part = r / c.copies, parts = c.ranks / c.copies;
    const Weight wq{columns(q.weight, r, c.ranks), at::zeros({q.weight.size(0) / c.ranks}, at::kFloat)};
    const Weight wk{columns(k.weight, part, parts), at::zeros({k.weight.size(0) / parts}, at::kFloat)};
    const Tensor xq = columns(q.x, r, c.ranks).requires_grad_(), xk = columns(k.x, part, parts).requires_grad_();
    const QueryKey y = rms_norm_over_ranks({xq, xk}, wq, wk, kEps, world.all());
    // A rank that shares a key has a share of its gradient; here the shares are unequal.
    const double share = c.copies == 1 ? 1 : r % c.copies == 0 ? 0.75 : 0.25 / (c.copies - 1);
    const Tensor dk = columns(k.dy, part, parts) * share;
    torch::autograd::backward({y.q, y.k}, {columns(q.dy, r, c.ranks).to(c.dtype), dk.to(c.dtype)});
    return std::vector<Tensor>{y.q.detach(), xq.grad(), wq.grad, y.k.detach(), xk.grad(), wk.grad};
  });
}

// Concatenates an item of all ranks; those of copies are added, or must be equal.
Tensor joined(const Case& c, const std::vector<std::vector<Tensor>>& results, size_t item, int copies, bool adds) {
  std::vector<Tensor> parts;
  for (int r = 0; r < c.ranks; r += copies) {
    Tensor part = results[static_cast<size_t>(r)][item].to(at::kDouble);
    for (int copy = 1; copy < copies; ++copy) {
      const Tensor& other = results[static_cast<size_t>(r + copy)][item];
      if (adds) part = part + other.to(at::kDouble);
      if (!adds) {
        EXPECT_TRUE(at::equal(other.to(at::kDouble), part)) << name_of(c);
      }
    }
    parts.push_back(part);
  }
  return at::cat(parts, -1);
}

TEST(NormOverRanks, ANormOfSharedColumnsIsThatOfWholeRowsWithCopiesOfKeysOrWithout) {
  for (const Case& shape : {Case{2, 1, at::kFloat}, {3, 1, at::kFloat}, {4, 2, at::kFloat}, {4, 4, at::kFloat}}) {
    for (const auto dtype : kComputeTypes) {
      const Case c{shape.ranks, shape.copies, dtype};
      Inputs q = inputs(c.q_width(), 1, dtype), k = inputs(c.k_width(), 5, dtype);
      q.dy = q.dy.to(dtype), k.dy = k.dy.to(dtype);
      const auto results = run(c, q, k);
      size_t item = 0;
      for (const auto& [in, copies] : {std::pair(q, 1), std::pair(k, c.copies)}) {
        const Exact exact = exact_of(in);
        const int64_t width = in.x.size(-1) * copies;
        // rstd is a sum of squares, a division and a root; values and gradients have few more roundings, and copies
        // add.
        const double rounding = ops::error_bound(1, dtype, 2 * width + 10) * (copies + 1);
        const Tensor normed = in.x.to(at::kDouble).abs() + 1, w = in.weight.to(at::kDouble).abs().max();
        const double gradient = in.dy.abs().max().item<double>() * w.item<double>() * 4;
        ops::test::expect_within(joined(c, results, item++, copies, false), exact.y, exact.y.abs() * rounding + 1e-30,
                                 name_of(c) + " y");
        ops::test::expect_within(joined(c, results, item++, copies, true), exact.dx, normed * gradient * rounding,
                                 name_of(c) + " dx");
        const Tensor dw_norm = (in.dy.to(at::kDouble).abs() * normed * 2).sum(0);
        ops::test::expect_within(joined(c, results, item++, copies, true), exact.dw,
                                 dw_norm * (rounding + ops::error_bound(1, at::kFloat, kTokens)), name_of(c) + " dw");
      }
    }
  }
}

TEST(NormOverRanks, SendsTwoValuesForEachTokenEachWay) {
  std::vector<comm::Traffic> traffic(2);
  const Inputs in = inputs(8, 1, at::kBFloat16);
  comm::run_ranks(2, [&](comm::World& world) {
    const Weight weight{in.weight, at::zeros({8}, at::kFloat)};
    const Tensor x = in.x.clone().requires_grad_();
    const QueryKey y = rms_norm_over_ranks({x, x}, weight, weight, kEps, world.all());
    torch::autograd::backward({y.q.sum() + y.k.sum()});
    traffic[static_cast<size_t>(world.rank())] = world.all().traffic();
  });
  for (const comm::Traffic& t : traffic) {
    EXPECT_EQ(t.calls, 2);
    EXPECT_EQ(t.bytes(), 2 * (2 * kTokens * 4));  // with two ranks, each sends everything, or halves twice
  }
}

}  // namespace
}  // namespace athanor::norm_over_ranks_test

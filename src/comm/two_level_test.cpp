#include "comm/two_level.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "comm/testing/collectives.h"
#include "comm/thread_ranks.h"

namespace athanor::comm::two_level_test {
namespace {

struct Shape {
  int inner, outer;
  int size() const { return inner * outer; }
  bool keeps_the_tree() const { return (inner & (inner - 1)) == 0; }
};

constexpr Shape kShapes[] = {{2, 2}, {4, 2}, {2, 3}, {3, 2}, {1, 3}, {4, 1}, {3, 3}};
constexpr Reduction kReductions[] = {Reduction::kSum, Reduction::kMean, Reduction::kMax};

// Runs the body on each rank, with the two-level group over all of them.
void over(Shape shape, const std::function<void(World&, TwoLevel&)>& body) {
  run_ranks(shape.size(), [&](World& world) {
    std::vector<std::vector<int>> inner(static_cast<size_t>(shape.outer)), outer(static_cast<size_t>(shape.inner));
    for (int rank = 0; rank < shape.size(); ++rank) {
      inner[static_cast<size_t>(rank / shape.inner)].push_back(rank);
      outer[static_cast<size_t>(rank % shape.inner)].push_back(rank);
    }
    const auto inside = world.make_group(inner, "inner"), outside = world.make_group(outer, "outer");
    TwoLevel two(*inside, *outside);
    ASSERT_EQ(two.size(), world.size());
    ASSERT_EQ(two.rank(), world.rank());
    body(world, two);
  });
}

std::vector<Tensor> terms_of_all(int ranks, int call, int64_t count, at::ScalarType type) {
  std::vector<Tensor> terms;
  for (int rank = 0; rank < ranks; ++rank) terms.push_back(term_of(rank, call, count, type));
  return terms;
}

// Returns how far a sum of n terms in fp32 may be from the exact one, by element: each term is in at most n − 1
// additions; a mean has two roundings more. Then comes the rounding to the type itself.
Tensor error_bound(const std::vector<Tensor>& terms, Reduction reduction) {
  const auto n = static_cast<double>(terms.size());
  Tensor size = at::zeros_like(terms[0], at::kDouble);
  for (const Tensor& term : terms) size += term.to(at::kDouble).abs();
  if (reduction == Reduction::kMean) size /= n;
  const double wide = std::numeric_limits<float>::epsilon() / 2,
               type = terms[0].scalar_type() == at::kBFloat16 ? 0x1p-8 : wide;
  return size * ((n + 1) * wide * 1.01 + type);
}

Tensor exact(const std::vector<Tensor>& terms, Reduction reduction) {
  Tensor sum = at::zeros_like(terms[0], at::kDouble);
  for (const Tensor& term : terms) sum += term.to(at::kDouble);
  return reduction == Reduction::kMean ? sum / static_cast<double>(terms.size()) : sum;
}

void expect_sum(const Tensor& x, const std::vector<Tensor>& terms, Reduction reduction, Shape shape) {
  if (shape.keeps_the_tree() || reduction == Reduction::kMax || x.scalar_type() == at::kLong) {
    EXPECT_TRUE(same_bits(x, tree_of(terms, reduction)));
  } else {
    EXPECT_TRUE(
        (x.to(at::kDouble) - exact(terms, reduction)).abs().le(error_bound(terms, reduction)).all().item<bool>());
  }
}

TEST(TwoLevel, AllReduceHasTheTreesBitsWhereTheInnerSizeIsAPowerOfTwoAndIsWithinTheBoundElsewhere) {
  for (const Shape shape : kShapes) {
    for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf, at::kLong}) {
      if (type == at::kHalf && !shape.keeps_the_tree()) continue;
      for (const Reduction reduction : kReductions) {
        if (type == at::kLong && reduction == Reduction::kMean) continue;
        SCOPED_TRACE(
            fmt::format("{} x {}, {}, {}", shape.inner, shape.outer, at::toString(type), static_cast<int>(reduction)));
        std::vector<std::vector<Tensor>> terms_of_sizes;
        for (const int64_t count : {1, 5, 1024, 4099})
          terms_of_sizes.push_back(terms_of_all(shape.size(), 0, count, type));
        over(shape, [&](World& world, TwoLevel& two) {
          for (const auto& terms : terms_of_sizes) {
            const Tensor x = terms[static_cast<size_t>(world.rank())].clone();
            two.all_reduce(x, reduction).wait();
            expect_sum(x, terms, reduction, shape);
          }
        });
      }
    }
  }
}

TEST(TwoLevel, ThreeInsideDoNotFollowTheTreeOrTheTestAboveWouldProveNothing) {
  const Shape shape{3, 2};
  const auto terms = terms_of_all(6, 0, 4099, at::kFloat);
  over(shape, [&](World& world, TwoLevel& two) {
    const Tensor x = terms[static_cast<size_t>(world.rank())].clone();
    two.all_reduce(x).wait();
    EXPECT_FALSE(same_bits(x, tree_of(terms, Reduction::kSum)));
  });
}

// Large terms cancel. What survives of the small ones in fp32 shows the order of additions, which rounding to the
// narrow type would hide.
TEST(TwoLevel, NarrowTermsAreAddedAlongTheTreeToo) {
  const Shape shape{4, 2};
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    std::vector<Tensor> terms;
    for (int rank = 0; rank < shape.size(); ++rank) {
      const Tensor small = term_of(rank, 5, 2048, at::kFloat) * 0x1p-12;
      terms.push_back((rank % 2 == 0 ? at::full({2048}, rank % 4 == 0 ? 0x1p15 : -0x1p15) : small).to(type));
    }
    std::vector<Tensor> wides;
    for (const Tensor& term : terms) wides.push_back(term.to(at::kFloat));
    Tensor in_turn = wides[0];
    for (size_t i = 1; i < wides.size(); ++i) in_turn = in_turn + wides[i];
    ASSERT_FALSE(same_bits(in_turn.to(type), tree_of(terms, Reduction::kSum)));
    over(shape, [&](World& world, TwoLevel& two) {
      const Tensor x = terms[static_cast<size_t>(world.rank())].clone();
      two.all_reduce(x).wait();
      EXPECT_TRUE(same_bits(x, tree_of(terms, Reduction::kSum)));
    });
  }
}

TEST(TwoLevel, ReduceScatterGivesEachRankThePartThatItsOrderSaysAndLeavesTheTermsAlone) {
  for (const Shape shape : kShapes) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      for (const Reduction reduction : kReductions) {
        SCOPED_TRACE(
            fmt::format("{} x {}, {}, {}", shape.inner, shape.outer, at::toString(type), static_cast<int>(reduction)));
        constexpr int64_t kPart = 37;
        const auto terms = terms_of_all(shape.size(), 1, kPart * shape.size(), type);
        over(shape, [&](World& world, TwoLevel& two) {
          const Tensor in = terms[static_cast<size_t>(world.rank())].clone();
          for (const PartOrder order : {PartOrder::kFlat, PartOrder::kTransposed}) {
            const Tensor out = at::empty({kPart}, in.options());
            two.reduce_scatter(out, in, reduction, order).wait();
            std::vector<Tensor> parts;
            for (const Tensor& term : terms) parts.push_back(term.narrow(0, two.part(order) * kPart, kPart));
            expect_sum(out, parts, reduction, shape);
          }
          EXPECT_TRUE(same_bits(in, terms[static_cast<size_t>(world.rank())]));
        });
      }
    }
  }
}

TEST(TwoLevel, PartsAreANumberingOfTheRanks) {
  over({3, 2}, [](World& world, TwoLevel& two) {
    EXPECT_EQ(two.part(PartOrder::kFlat), world.rank());
    EXPECT_EQ(two.part(PartOrder::kTransposed), (world.rank() % 3) * 2 + world.rank() / 3);
  });
}

TEST(TwoLevel, AllGatherIsTheWayBack) {
  for (const Shape shape : kShapes) {
    over(shape, [&](World&, TwoLevel& two) {
      for (const PartOrder order : {PartOrder::kFlat, PartOrder::kTransposed}) {
        const Tensor out = at::zeros({two.size() * 5}, at::kLong);
        const Tensor all = at::arange(two.size() * 5, at::kLong);
        two.all_gather(out, all.narrow(0, two.part(order) * 5, 5).clone(), order).wait();
        EXPECT_TRUE(same_bits(out, all));
      }
    });
  }
}

TEST(TwoLevel, AllToAllIsThatOfTheFlatGroup) {
  for (const Shape shape : kShapes) {
    over(shape, [&](World& world, TwoLevel& two) {
      const Tensor in = term_of(world.rank(), 2, 6 * two.size(), at::kBFloat16);
      const Tensor flat = at::empty_like(in), out = at::empty_like(in);
      world.all().all_to_all(flat, in).wait();
      two.all_to_all(out, in).wait();
      EXPECT_TRUE(same_bits(out, flat));
    });
  }
}

// Returns the rows from rank s to rank t: some pairs have none, one rank gets nothing, another sends nothing.
int64_t rows_between(int s, int t, int seed, int size) {
  if (s == size - 1 || t == 1) return 0;
  return (s * 7 + t * 3 + seed * 5) % 6 < 2 ? 0 : (s + 2 * t + seed) % 5;
}

TEST(TwoLevel, UnevenAllToAllIsThatOfTheFlatGroup) {
  for (const Shape shape : kShapes) {
    for (int seed = 0; seed < 3; ++seed) {
      SCOPED_TRACE(fmt::format("{} x {}, {}", shape.inner, shape.outer, seed));
      over(shape, [&](World& world, TwoLevel& two) {
        const int n = world.size(), me = world.rank();
        std::vector<int64_t> in_rows, out_rows;
        for (int peer = 0; peer < n; ++peer) {
          in_rows.push_back(rows_between(me, peer, seed, n));
          out_rows.push_back(rows_between(peer, me, seed, n));
        }
        EXPECT_EQ(two.exchange_rows(in_rows), out_rows);
        const auto total = [](const std::vector<int64_t>& rows) {
          return std::accumulate(rows.begin(), rows.end(), int64_t{0});
        };
        const Tensor in = term_of(me, seed, total(in_rows) * 3, at::kFloat).view({-1, 3});
        const Tensor flat = at::zeros({total(out_rows), 3}), out = at::zeros_like(flat), by_list = at::zeros_like(flat);
        world.all().all_to_all(flat, in, out_rows, in_rows).wait();
        two.all_to_all(out, in, out_rows, in_rows).wait();
        EXPECT_TRUE(same_bits(out, flat));

        // The same rows, in reverse order with another row before them, and selected by a list.
        const Tensor backwards = at::cat({at::full({1, 3}, 1e9), in.flip(0)});
        std::vector<int64_t> ids(static_cast<size_t>(in.size(0)));
        for (size_t i = 0; i < ids.size(); ++i) ids[i] = in.size(0) - static_cast<int64_t>(i);
        two.all_to_all(by_list, backwards, out_rows, in_rows, ids).wait();
        EXPECT_TRUE(same_bits(by_list, flat));
      });
    }
  }
}

TEST(TwoLevel, ARowMayGoToSeveralRanks) {
  over({2, 2}, [](World& world, TwoLevel& two) {
    const std::vector<int64_t> one_each(4, 1), ids(4, 0);
    const Tensor in = at::full({1, 2}, static_cast<double>(world.rank())), out = at::empty({4, 2});
    two.all_to_all(out, in, one_each, one_each, ids).wait();
    EXPECT_TRUE(same_bits(out, at::arange(4).to(at::kFloat).unsqueeze(1).expand({4, 2}).contiguous()));
  });
}

TEST(TwoLevel, BytesOutsideAreThoseOfTheFormula) {
  over({4, 2}, [](World&, TwoLevel& two) {
    const auto outside = [&](const auto& collective) {
      two.outer().reset_traffic();
      collective();
      return two.outer().traffic().bytes();
    };
    const Tensor x = at::ones({8192}), narrow = x.to(at::kBFloat16), part = at::empty({1024});
    // 2 · (b / I) · (O − 1) / O, for bf16 in fp32.
    EXPECT_EQ(outside([&] { two.all_reduce(x).wait(); }), 2 * 8192 * 4 / 4 / 2);
    EXPECT_EQ(outside([&] { two.all_reduce(narrow).wait(); }), 2 * 8192 * 4 / 4 / 2);
    EXPECT_EQ(outside([&] { two.reduce_scatter(part, x).wait(); }), 8192 * 4 / 4 / 2);
    EXPECT_EQ(outside([&] { two.all_gather(x, part).wait(); }), 8192 * 4 / 4 / 2);
    EXPECT_EQ(outside([&] { two.all_to_all(at::empty_like(x), x).wait(); }), 8192 * 4 / 2);
  });
}

TEST(TwoLevel, SeveralMayBeUnderWayWhenAllRanksWaitInOneOrder) {
  const Shape shape{2, 2};
  const auto first = terms_of_all(4, 3, 3000, at::kFloat), second = terms_of_all(4, 4, 2000, at::kBFloat16);
  over(shape, [&](World& world, TwoLevel& two) {
    const auto me = static_cast<size_t>(world.rank());
    const Tensor x = first[me].clone(), y = second[me].clone();
    Hops a = two.all_reduce(x), b = two.all_reduce(y);
    a.wait();
    b.wait();
    EXPECT_TRUE(same_bits(x, tree_of(first, Reduction::kSum)));
    EXPECT_TRUE(same_bits(y, tree_of(second, Reduction::kSum)));
    Hops().wait();
  });
}

}  // namespace
}  // namespace athanor::comm::two_level_test

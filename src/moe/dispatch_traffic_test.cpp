// Tests what each kind of dispatch sends, to which ranks, in how many calls: the formulas of moe/dispatch_exchange.h.

#include "moe/dispatch_exchange.h"
#include "moe/testing/dispatch_case.h"

namespace athanor::moe::dispatch_traffic_test {
namespace {

using namespace test;  // NOLINT

// Tokens of a rank that have a choice among experts [first, first + count).
int64_t tokens_for(const DispatchCase& c, int rank, int64_t first, int64_t count) {
  const Tensor ids = c.ids(rank);
  return ((ids >= first) & (ids < first + count)).any(1).sum().item<int64_t>();
}
int64_t tokens_for_rank(const DispatchCase& c, int from, int to) {
  return tokens_for(c, from, to * c.per_rank(), c.per_rank());
}

int64_t element(const DispatchCase& c) { return static_cast<int64_t>(c10::elementSize(c.dtype)); }

// Bytes from each rank to each other rank in a forward and a backward, and the calls of each rank.
struct Sent {
  std::vector<std::vector<int64_t>> bytes;
  std::vector<int64_t> calls;
};

Sent measure(const DispatchCase& c, const DispatchOptions& options) {
  Sent sent{std::vector<std::vector<int64_t>>(c.tokens.size()), std::vector<int64_t>(c.tokens.size())};
  run_case(c, {options}, [&](Dispatch& dispatch) {
    const auto& traffic = dispatch.group().traffic();
    const auto rank = static_cast<size_t>(dispatch.group().rank());
    sent.bytes[rank] = traffic.bytes_to;
    sent.calls[rank] = traffic.calls;
  });
  return sent;
}

template <class F>
void expect_bytes(const DispatchCase& c, const Sent& sent, F expected, const std::string& what) {
  for (int from = 0; from < c.ranks(); ++from) {
    for (int to = 0; to < c.ranks(); ++to) {
      EXPECT_EQ(sent.bytes[static_cast<size_t>(from)][static_cast<size_t>(to)], from == to ? 0 : expected(from, to))
          << what << ", from rank " << from << " to " << to;
    }
  }
}

// Each case in the form for the host, then in the one for devices.
std::vector<DispatchCase> in_both_forms(std::vector<DispatchCase> cases) {
  for (size_t i = 0, count = cases.size(); i < count; ++i) {
    cases.push_back(cases[i]);
    cases.back().device_form = true;
  }
  return cases;
}

const std::vector<DispatchCase> kCases = in_both_forms(
    {{.tokens = {9, 0, 14, 5}, .num_experts = 8, .k = 2},
     {.tokens = {9, 7, 14, 5}, .num_experts = 8, .k = 2, .dtype = at::kBFloat16, .lowest = 2, .highest = 4},
     {.tokens = {7, 7}, .num_experts = 4, .k = 2}});

TEST(DispatchTraffic, AllToAllSendsATokenOnceToEachRankThatOwnsOneOfItsExpertsAndNoneToOthers) {
  for (const DispatchCase& c : kCases) {
    for (const int64_t chunks : {1, 3}) {
      const Sent sent = measure(c, {DispatchKind::kAllToAll, chunks});
      for (const int64_t calls : sent.calls) EXPECT_EQ(calls, 4 * chunks + 3);
      const int64_t row = c.hidden * element(c);
      expect_bytes(
          c, sent,
          [&](int from, int to) {
            const int64_t there = tokens_for_rank(c, from, to), back = tokens_for_rank(c, to, from);
            return 8 * chunks + there * (8 * c.k + 2 * row) + back * (2 * row + 4 * c.k);
          },
          fmt::format("{} chunks", chunks));
    }
  }
  // Experts 2 to 4 belong to ranks 1 and 2: the other ranks only receive counts from ranks that sent them no tokens.
  const DispatchCase& c = kCases[1];
  EXPECT_EQ(tokens_for_rank(c, 0, 3) + tokens_for_rank(c, 3, 0), 0);
  EXPECT_EQ(measure(c, {DispatchKind::kAllToAll, 1}).bytes[0][3], 8);
}

TEST(DispatchTraffic, AllGatherSendsAllTokensToAllAndPaddingWithThemAndNumbersOfTokensOnlyIfTheyMayDiffer) {
  for (const DispatchCase& c : kCases) {
    for (const int64_t chunks : {1, 3}) {
      const Sent sent = measure(c, {DispatchKind::kAllGather, chunks});
      const int64_t counts = c.is_even() ? 0 : 1;
      for (const int64_t calls : sent.calls) EXPECT_EQ(calls, 4 * chunks + 2 + counts);
      int64_t padded = 0;
      for (int64_t i = 0; i < chunks; ++i) {
        int64_t most = 0;
        for (const int64_t t : c.tokens)
          most = std::max(most, chunk_begin(t, chunks, i + 1) - chunk_begin(t, chunks, i));
        padded += most;
      }
      const int64_t bytes = 8 * counts + padded * (8 * c.k + 4 * c.hidden * element(c) + 4 * c.k);
      expect_bytes(
          c, sent, [&](int, int) { return bytes; }, fmt::format("{} chunks", chunks));
    }
  }
}

TEST(DispatchTraffic, AllToAll2dCrossesToANodeOnceForEachTokenThatNeedsIt) {
  constexpr int kInner = 2;
  for (const DispatchCase& c : kCases) {
    if (c.ranks() < 4) continue;
    const Sent sent = measure(c, {DispatchKind::kAllToAll2d, 3, 1, kInner});
    for (const int64_t calls : sent.calls) EXPECT_EQ(calls, 2 * (4 * 3 + 3));
    const int64_t row = c.hidden * element(c), node_experts = kInner * c.per_rank();
    const auto crossing = [&](int from, int to) {  // to the node of `to`
      return tokens_for(c, from, to / kInner * node_experts, node_experts);
    };
    const auto inside = [&](int from, int to) {  // tokens that `from` got from other nodes, and its own tokens
      int64_t count = 0;
      for (int source = from % kInner; source < c.ranks(); source += kInner) count += tokens_for_rank(c, source, to);
      return count;
    };
    expect_bytes(
        c, sent,
        [&](int from, int to) -> int64_t {
          if (from / kInner == to / kInner)
            return 8 * 3 + inside(from, to) * (8 * (c.k + 1) + 2 * row) + inside(to, from) * (2 * row + 4 * (c.k + 1));
          if (from % kInner != to % kInner) return 0;  // not even counts
          const int64_t of_second_hop = c.device_form ? 8 * 3 * kInner : 0;
          return 8 * 3 + of_second_hop + crossing(from, to) * (8 * c.k + 2 * row) +
                 crossing(to, from) * (2 * c.hidden * 4 + 4 * c.k);
        },
        "2d");
  }
}

TEST(DispatchTraffic, ARepetitionWithTheSameChoicesExchangesNoCountsAndHasTheSameBits) {
  const DispatchCase& c = kCases[0];
  for (const auto& [kind, device_form] : {std::pair{DispatchKind::kAllToAll, false},
                                          {DispatchKind::kAllToAll, true},
                                          {DispatchKind::kAllToAll2d, false},
                                          {DispatchKind::kAllToAll2d, true}}) {
    const DispatchOptions options{kind, 3, 1, 2, device_form};
    const int64_t hops = kind == DispatchKind::kAllToAll ? 1 : 2;
    comm::run_ranks(c.ranks(), [&](comm::World& world) {
      const at::NoGradGuard no_grad;
      const int rank = world.rank();
      Dispatch dispatch(world.all(), options);
      const KnownTokens known{.counts = std::make_shared<RowCounts>()};
      const auto repeat = [&] {
        world.all().reset_traffic();
        return dispatch.experts(c.x(rank), c.weights(rank), c.ids(rank), c.experts(rank * c.per_rank(), c.per_rank()),
                                c.combine, known);
      };
      const Tensor first = repeat();
      const int64_t calls = world.all().traffic().calls;
      expect_same_bits(repeat(), first, "y");
      EXPECT_EQ(world.all().traffic().calls, calls - hops);
    });
  }
}

TEST(DispatchTraffic, WithoutBackwardHalfOfTheCallsAreMade) {
  const DispatchCase& c = kCases[0];
  comm::run_ranks(c.ranks(), [&](comm::World& world) {
    const at::NoGradGuard no_grad;
    const int rank = world.rank();
    Dispatch dispatch(world.all(), {DispatchKind::kAllToAll, 2});
    dispatch.experts(c.x(rank), c.weights(rank), c.ids(rank), c.experts(rank * c.per_rank(), c.per_rank()));
    EXPECT_EQ(world.all().traffic().calls, 2 + 2 * 2);
  });
}

}  // namespace
}  // namespace athanor::moe::dispatch_traffic_test

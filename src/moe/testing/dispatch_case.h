#pragma once
// Shared by the tests of dispatch: a layer over some ranks, run on threads, and the definition with which it is
// compared.

#include <algorithm>
#include <vector>

#include "comm/thread_ranks.h"
#include "moe/dispatch.h"
#include "ops/device.h"
#include "ops/testing/op_testing.h"

namespace athanor::moe::test {

using namespace ops::test;  // NOLINT: normal, run, expect_same_bits

struct DispatchCase {
  std::vector<int64_t> tokens;  ///< for each rank
  int64_t num_experts = 8, k = 2, hidden = 20, ffn = 12;
  at::ScalarType dtype = at::kFloat;
  CombineWeights combine = CombineWeights::kAfterDown;
  int64_t lowest = 0, highest = -1;  ///< first and last expert that is chosen; −1: all
  bool drops = false;                ///< true: some choices are dropped
  bool device_form = false;          ///< true: the forms for devices are tested, on CPU tensors
  bool gpt_oss = false;              ///< true: experts have biases and another unit than SwiGLU
  bool is_bounded = false;           ///< true: how many tokens of a rank choose an expert at most is known

  int ranks() const { return static_cast<int>(tokens.size()); }
  int64_t per_rank() const { return num_experts / ranks(); }
  /// True if all ranks have the same number of tokens, which they then know.
  bool is_even() const { return std::ranges::adjacent_find(tokens, std::not_equal_to()) == tokens.end(); }
  int64_t most_of_expert() const {
    int64_t most = 0;
    for (int r = 0; r < ranks(); ++r) {
      const Tensor all = ids(r);
      for (int64_t e = 0; e < num_experts; ++e) most = std::max(most, (all == e).sum().item<int64_t>());
    }
    return most;
  }
  uint64_t seed(int rank, uint64_t what) const { return static_cast<uint64_t>(rank) * 16 + what; }
  Tensor x(int rank) const { return normal({tokens[static_cast<size_t>(rank)], hidden}, seed(rank, 1), dtype); }
  Tensor dy(int rank) const { return normal({tokens[static_cast<size_t>(rank)], hidden}, seed(rank, 2), dtype); }
  Tensor weights(int rank) const { return normal({tokens[static_cast<size_t>(rank)], k}, seed(rank, 3)).abs(); }
  Tensor ids(int rank) const {
    const int64_t last = highest < 0 ? num_experts - 1 : highest, t = tokens[static_cast<size_t>(rank)];
    Tensor ids = std::get<1>(normal({t, last - lowest + 1}, seed(rank, 4)).topk(k, 1)) + lowest;
    if (drops) ids = at::where(normal({t, k}, seed(rank, 5)) < -0.5, ids.bitwise_not(), ids);
    return ids.contiguous();
  }
  /// Returns experts [first, first + count).
  ops::ExpertWeights experts(int64_t first, int64_t count) const {
    const auto part = [&](at::IntArrayRef shape, uint64_t seed) {
      return weight_of(normal(shape, seed, dtype).narrow(0, first, count).clone(), 0.5);
    };
    ops::ExpertWeights w{part({num_experts, ffn, hidden}, 1001), part({num_experts, ffn, hidden}, 1002),
                         part({num_experts, hidden, ffn}, 1003)};
    if (!gpt_oss) return w;
    w.gate_bias_LF = part({num_experts, ffn}, 1004), w.up_bias_LF = part({num_experts, ffn}, 1005);
    w.down_bias_LD = part({num_experts, hidden}, 1006);
    w.unit = {.slope = 1.702F, .limit = 2, .offset = 1};
    return w;
  }
};

/// The results of a rank.
struct RankResult {
  Tensor y, dx, dweights;
  std::vector<Tensor> grads;  ///< gradients of its experts: gate, up, down, and their biases
};

inline std::vector<Tensor> buckets(const ops::ExpertWeights& w) {
  std::vector<Tensor> grads;
  for (const Weight& weight : w.all()) grads.push_back(weight.grad);
  return grads;
}

/// Returns the same on a device.
inline ops::ExpertWeights moved(ops::ExpertWeights w, at::Device device) {
  for (Weight* each : {&w.gate_LFD, &w.up_LFD, &w.down_LDF, &w.gate_bias_LF, &w.up_bias_LF, &w.down_bias_LD})
    if (each->defined()) *each = {each->value.to(device), each->grad.to(device)};
  return w;
}

/// Splits `all` by rank.
inline std::vector<Tensor> by_rank(const Tensor& all, const DispatchCase& c) {
  return all.split_with_sizes(at::IntArrayRef(c.tokens), 0);
}

inline Tensor tree(const std::vector<Tensor>& terms, size_t lo, size_t hi) {
  if (hi - lo == 1) return terms[lo].to(at::kFloat);
  size_t half = 1;
  while (half * 2 < hi - lo) half *= 2;
  return tree(terms, lo, lo + half) + tree(terms, lo + half, hi);
}

/// Returns the results by definition: every rank's experts over the tokens of all ranks, in one process; then the tree
/// over ranks.
inline std::vector<RankResult> expected_of(const DispatchCase& c) {
  std::vector<Tensor> x, dy, weights, ids;
  for (int r = 0; r < c.ranks(); ++r) {
    x.push_back(c.x(r)), dy.push_back(c.dy(r)), weights.push_back(c.weights(r)), ids.push_back(c.ids(r));
  }
  const Tensor all_ids = at::cat(ids);
  std::vector<Tensor> y, dx, dweights;
  std::vector<RankResult> results(x.size());
  for (int r = 0; r < c.ranks(); ++r) {
    const ops::ExpertWeights w = c.experts(r * c.per_rank(), c.per_rank());
    const auto part = run(
        [&](const auto& in) {
          const auto experts = c.device_form ? ops::device::experts : ops::experts;
          return experts(in[0], in[1], all_ids, w, r * c.per_rank(), c.per_rank(), c.combine);
        },
        {at::cat(x), at::cat(weights)}, at::cat(dy));
    y.push_back(part.y), dx.push_back(part.dx[0]), dweights.push_back(part.dx[1]);
    results[static_cast<size_t>(r)].grads = buckets(w);
  }
  const auto sums = by_rank(tree(y, 0, y.size()).to(c.dtype), c), dsums = by_rank(tree(dx, 0, y.size()).to(c.dtype), c);
  const auto wsums = by_rank(tree(dweights, 0, y.size()), c);
  for (size_t r = 0; r < results.size(); ++r) {
    results[r].y = sums[r], results[r].dx = dsums[r], results[r].dweights = wsums[r];
  }
  return results;
}

/// Runs one rank of a case, forward and backward. Collective.
inline RankResult run_rank(const DispatchCase& c, Dispatch& dispatch, at::Device device = at::kCPU) {
  const int rank = dispatch.group().rank();
  const ops::ExpertWeights w = moved(c.experts(rank * c.per_rank(), c.per_rank()), device);
  const Tensor ids = c.ids(rank).to(device);
  KnownTokens known{.equal = c.is_even()};
  if (c.is_bounded) known.most_of_expert = c.most_of_expert();
  const auto outcome = run([&](const auto& in) { return dispatch.experts(in[0], in[1], ids, w, c.combine, known); },
                           {c.x(rank).to(device), c.weights(rank).to(device)}, c.dy(rank).to(device));
  RankResult result{outcome.y.cpu(), outcome.dx[0].cpu(), outcome.dx[1].cpu(), {}};
  for (const Tensor& grad : buckets(w)) result.grads.push_back(grad.cpu());
  return result;
}

/// Runs all ranks, each on a separate thread, with each of these options; `look` sees each rank's dispatch afterwards.
inline std::vector<std::vector<RankResult>> run_case(const DispatchCase& c, const std::vector<DispatchOptions>& ways,
                                                     const std::function<void(Dispatch&)>& look = {}) {
  std::vector<std::vector<RankResult>> results(ways.size(), std::vector<RankResult>(static_cast<size_t>(c.ranks())));
  comm::WorldOptions world_options;
  world_options.check = true;  // a rank that calls a different collective is named, instead of a hang
  world_options.timeout = std::chrono::seconds(60);
  comm::run_ranks(
      c.ranks(),
      [&](comm::World& world) {
        at::set_num_threads(1);
        for (size_t way = 0; way < ways.size(); ++way) {
          world.all().reset_traffic();
          DispatchOptions options = ways[way];
          options.device_form = c.device_form;
          Dispatch dispatch(world.all(), options);
          results[way][static_cast<size_t>(world.rank())] = run_rank(c, dispatch);
          if (look) look(dispatch);
        }
      },
      world_options);
  return results;
}

inline void expect_same(const std::vector<RankResult>& actual, const std::vector<RankResult>& expected,
                        const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t r = 0; r < actual.size(); ++r) {
    const std::string at = what + ", rank " + std::to_string(r) + ": ";
    expect_same_bits(actual[r].y, expected[r].y, at + "y");
    expect_same_bits(actual[r].dx, expected[r].dx, at + "dx");
    expect_same_bits(actual[r].dweights, expected[r].dweights, at + "dweights");
    const char* names[] = {"gate", "up", "down"};
    for (size_t i = 0; i < 3; ++i) expect_same_bits(actual[r].grads[i], expected[r].grads[i], at + names[i]);
  }
}

}  // namespace athanor::moe::test

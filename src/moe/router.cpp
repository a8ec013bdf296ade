#include "moe/router.h"

#include <atomic>
#include <limits>

#include "comm/communicator.h"
#include "kernels/routing.h"
#include "moe/balance_ranks.h"
#include "moe/router_kernels.h"
#include "moe/router_on_device.h"
#include "moe/scores.h"
#include "ops/device.h"
#include "ops/device/on_stream.h"
#include "ops/linear.h"
#include "ops/tokens_per_rank.h"
#include "ops/transfer.h"

namespace athanor::moe {
namespace {

Tensor choose(const Tensor& scores_TE, int64_t k) {
  if (ops::device::takes(scores_TE)) return on_device::choose(scores_TE, k);
  Tensor ids = at::empty({scores_TE.size(0), k}, at::kLong);
  const float* from = ops::pointer<float>(scores_TE);
  auto* to = ids.data_ptr<int64_t>();
  const int64_t width = scores_TE.size(1);
  ops::for_rows(scores_TE.size(0), width, [&](int64_t begin, int64_t end) {
    kernels::top_k(from + begin * width, to + begin * k, end - begin, width, k);
  });
  return ids;
}

Tensor count_choices(const Tensor& ids_TK, int64_t num_sequences, int64_t num_experts) {
  if (ops::device::takes(ids_TK)) return on_device::count_choices(ids_TK, num_sequences, num_experts);
  Tensor counts = at::zeros({num_sequences, num_experts}, at::kFloat);
  const int64_t per_sequence = ids_TK.numel() / std::max<int64_t>(num_sequences, 1);
  const auto* id = ids_TK.const_data_ptr<int64_t>();
  auto* count = counts.data_ptr<float>();
  for (int64_t b = 0; b < num_sequences; ++b, count += num_experts) {
    for (int64_t c = 0; c < per_sequence; ++c) count[*id++] += 1;
  }
  return counts;
}

Tensor count_taken(const Tensor& ids_TK, int64_t num_experts) {
  if (ops::device::takes(ids_TK)) return on_device::count_taken(ids_TK, num_experts);
  Tensor load = at::zeros({num_experts}, at::kLong);
  const auto* id = ids_TK.const_data_ptr<int64_t>();
  auto* count = load.data_ptr<int64_t>();
  for (int64_t c = 0; c < ids_TK.numel(); ++c) {
    if (id[c] >= 0) ++count[id[c]];
  }
  return load;
}

Tensor noise_like(const Tensor& logits_TE, const RouterNoise& noise, int64_t num_sequences) {
  Tensor out = at::empty(logits_TE.sizes(), at::kFloat);
  auto* value = out.data_ptr<float>();
  const auto numbers = on_device::noise_numbers(noise, out.numel() / std::max<int64_t>(num_sequences, 1));
  ops::for_rows(out.numel(), 1, [&](int64_t begin, int64_t end) {
    numbers.random.fill_normal(value + begin, static_cast<uint64_t>(numbers.first + begin),
                               static_cast<uint64_t>(numbers.first + end), numbers.scale);
  });
  return ops::send(out, logits_TE.device());
}

// Returns which tokens have scores that no longer distinguish experts whose logits differ, bool [T, 1]: one that
// underflowed or, of sigmoids, one that rounding made 1.
Tensor loses_order(const Tensor& scores_TE, const kernels::RouterRule& rule) {
  Tensor lost = scores_TE < std::numeric_limits<float>::min();
  if (rule.sigmoid) lost = lost.logical_or(scores_TE == 1);
  return lost.any(1, /*keepdim=*/true);
}

// Returns numbers whose order in each row is that of `first`, and among its equals that of `second`.
Tensor order_of(const Tensor& first, const Tensor& second) {
  const auto by = [](const Tensor& values) { return std::get<1>(at::sort(values, true, 1, /*descending=*/true)); };
  const Tensor by_second = by(second), best_first = by_second.gather(1, by(first.gather(1, by_second)));
  const Tensor numbers = at::arange(0, -first.size(1), -1, first.options()).expand_as(first);
  return at::empty_like(first).scatter_(1, best_first, numbers);
}

// Returns the values by which experts are chosen: the scores, plus what is added only for choosing. If noise makes
// scores that no longer order a token's experts, its logits with noise do.
Tensor choosing_scores(const Tensor& logits_TE, const Tensor& scores_TE, const RouterOptions& options,
                       const kernels::RouterRule& rule, int64_t num_sequences) {
  Tensor scores = scores_TE;
  if (options.training && options.noise.decides_alone()) return noise_like(logits_TE, options.noise, num_sequences);
  if (options.training && options.noise.stddev > 0) {
    const Tensor noisy = logits_TE.to(at::kFloat) + noise_like(logits_TE, options.noise, num_sequences);
    scores = compute_scores(noisy, rule).scores_TE;
    const Tensor lost = loses_order(scores, rule);
    if (!options.bias_E.defined()) return at::where(lost, noisy, scores);
    scores = scores + options.bias_E;
    return ops::device::takes(lost) || lost.any().item<bool>() ? at::where(lost, order_of(scores, noisy), scores)
                                                               : scores;
  }
  return options.bias_E.defined() ? scores + options.bias_E : scores;
}

void set_balanced(Routing& r, const BalanceCounts& counts) {
  auto* numbers = r.counts.data_ptr<int64_t>() + (r.counts.numel() - 4);
  numbers[0] = counts.moved;
  numbers[1] = counts.dropped;
}

void balance_groups(const BalanceOptions& options, const Tensor& scores_TK, int64_t num_sequences, int64_t num_experts,
                    Routing& r) {
  const auto in = on_device::choice_groups(options, r.expert_ids_TK, num_sequences, num_experts);
  const int64_t groups = in.groups, k = in.k, choices = in.choices();
  if (ops::device::takes(r.expert_ids_TK)) {
    r.counts.narrow(0, 2 * num_experts, 2)
        .copy_(on_device::balance_groups(options, r.expert_ids_TK, scores_TK, groups, num_experts));
    return;
  }
  auto* id = r.expert_ids_TK.data_ptr<int64_t>();
  const float* score = scores_TK.defined() ? scores_TK.const_data_ptr<float>() : nullptr;
  std::atomic<int64_t> moved = 0, dropped = 0;
  at::parallel_for(0, groups, 1, [&](int64_t begin, int64_t end) {
    for (int64_t group = begin; group < end; ++group) {
      const auto size = static_cast<size_t>(choices);
      const auto scores = score ? std::span(score + group * choices, size) : std::span<const float>();
      const auto counts = balance_group(options, {id + group * choices, size}, scores, k, num_experts);
      moved += counts.moved;
      dropped += counts.dropped;
    }
  });
  set_balanced(r, {moved, dropped});
}

void balance_over_ranks(const RouterOptions& options, const Tensor& scores_TK, int64_t num_sequences,
                        int64_t num_experts, Routing& r) {
  comm::Communicator& ranks = *options.balance_ranks;
  ATHANOR_CHECK(
      num_sequences * ranks.size() == options.balance.group_sequences,
      "moe.balance_group ({}) spans {} ranks, and this one routes {} sequences at once: their product must be "
      "the group",
      options.balance.group_sequences, ranks.size(), num_sequences);
  if (ops::device::takes(r.expert_ids_TK)) {
    r.counts.narrow(0, 2 * num_experts, 2)
        .copy_(on_device::balance_share(options.balance, ranks, r.expert_ids_TK, scores_TK, num_experts));
    return;
  }
  set_balanced(r, balance_share(options.balance, share_of(ranks), r.expert_ids_TK, scores_TK, num_experts));
}

void balance_choices(const RouterOptions& options, const Tensor& scores_TE, int64_t num_sequences, Routing& r) {
  if (options.balance.kind == Balance::kNone) return;
  const Tensor scores_TK = options.balance.needs_scores() ? scores_TE.gather(1, r.expert_ids_TK) : Tensor();
  if (options.balances_over_ranks()) {
    balance_over_ranks(options, scores_TK, num_sequences, scores_TE.size(1), r);
  } else {
    balance_groups(options.balance, scores_TK, num_sequences, scores_TE.size(1), r);
  }
}

void decide(const Tensor& logits_TE, const Tensor& scores_TE, const RouterOptions& options,
            const kernels::RouterRule& rule, int64_t num_sequences, Routing& r) {
  const at::NoGradGuard no_grad;
  const Tensor chosen_by_TE = choosing_scores(logits_TE, scores_TE, options, rule, num_sequences);
  r.expert_ids_TK = choose(chosen_by_TE, options.k);
  if (!options.training) return;
  r.counts = at::zeros({2 * rule.width + 4}, logits_TE.options().dtype(at::kLong));
  r.count_BE = count_choices(r.expert_ids_TK, num_sequences, rule.width);
  balance_choices(options, options.noise.decides_alone() ? chosen_by_TE : scores_TE, num_sequences, r);
  r.load_E = count_taken(r.expert_ids_TK, rule.width);
  r.counts.narrow(0, 0, rule.width).copy_(r.count_BE.sum(0));
  r.counts.narrow(0, rule.width, rule.width).copy_(r.load_E);
}

}  // namespace

bool RouterOptions::balances_over_ranks() const { return balance_ranks && balance_ranks->size() > 1; }

Routing route(const Tensor& x_TD, const Weight& weight_ED, const RouterOptions& options, int64_t num_sequences,
              const Choices* saved) {
  const kernels::RouterRule rule{weight_ED.value.size(0), options.k, options.score == RouterScore::kSigmoid,
                                 options.norm_topk_prob, static_cast<float>(options.scaling_factor)};
  const Tensor logits_TE = ops::linear(x_TD, weight_ED).contiguous();
  if (ops::device::takes(logits_TE) && ops::device::has_kernels(logits_TE))
    return on_device::route_with_kernels(logits_TE, options, rule, num_sequences, saved);
  const Scores scores = compute_scores(logits_TE, rule);
  Routing r;
  if (saved) {
    r.expert_ids_TK = saved->expert_ids_TK;
  } else {
    decide(logits_TE, scores.scores_TE, options, rule, num_sequences, r);
  }
  if (!options.training) {
    r.weights_TK = weights_of(scores, r.expert_ids_TK, rule);
    return r;
  }
  const Weighed weighed = weigh(logits_TE, scores, r.expert_ids_TK, num_sequences, rule);
  r.weights_TK = weighed.weights_TK;
  r.prob_sum_BE = weighed.prob_sum_BE;
  r.z_sum = weighed.z_sum;
  if (!saved) r.counts.narrow(0, 2 * rule.width + 2, 2).copy_(weighed.numbers);
  return r;
}

// In one op: the counts of all layers one after the other, so that each of the results is contiguous.
RouterCounts count_routings(const std::vector<Routing>& layers, int64_t expert_ranks) {
  const auto rows = static_cast<int64_t>(layers.size()), experts = layers[0].load_E.size(0);
  std::vector<Tensor> parts;
  int64_t begin = 0;
  for (const int64_t size : {experts, experts, int64_t{1}, int64_t{1}, int64_t{1}, int64_t{1}}) {
    for (const Routing& r : layers) parts.push_back(r.counts.narrow(0, begin, size));
    begin += size;
  }
  const Tensor all = at::cat(parts);
  const auto part = [&](int64_t at, int64_t size) { return all.narrow(0, rows * at, rows * size); };
  RouterCounts counts;
  counts.chosen = part(0, experts).view({rows, experts});
  counts.taken = part(experts, experts).view({rows, experts});
  counts.moved = part(2 * experts, 1);
  counts.dropped = part(2 * experts + 1, 1);
  counts.flat = part(2 * experts + 2, 1);
  counts.entropy_sum = part(2 * experts + 3, 1).view(at::kDouble);
  if (expert_ranks == 1) return counts;
  std::vector<Tensor> ids_LTK;
  for (const Routing& r : layers) ids_LTK.push_back(r.expert_ids_TK);
  counts.to_rank = ops::tokens_per_rank(at::stack(ids_LTK), experts / expert_ranks, expert_ranks);
  return counts;
}

void update_router_bias(const Tensor& bias_LE, const Tensor& count_LE, double rate) {
  const Tensor count = count_LE.to(at::kDouble);
  const Tensor below = at::sign(count.mean(1, /*keepdim=*/true) - count);
  Tensor bias = bias_LE;
  bias.add_(below.to(at::kFloat), static_cast<float>(rate));
}

}  // namespace athanor::moe

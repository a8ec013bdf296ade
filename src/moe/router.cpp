#include "moe/router.h"

#include <fmt/core.h>

#include <limits>

#include "comm/communicator.h"
#include "moe/router_form.h"
#include "ops/affine.h"
#include "ops/device/on_stream.h"
#include "ops/linear.h"
#include "ops/tokens_per_rank.h"
#include "ops/transfer.h"

namespace athanor::moe {
namespace {

Tensor noise_like(const Tensor& logits_TE, const RouterNoise& noise, int64_t num_sequences) {
  if (logits_TE.is_meta()) return at::empty(logits_TE.sizes(), logits_TE.options().dtype(at::kFloat));
  Tensor out = at::empty(logits_TE.sizes(), at::kFloat);
  auto* value = out.data_ptr<float>();
  const auto numbers = noise_numbers(noise, out.numel() / std::max<int64_t>(num_sequences, 1));
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

// Returns the scores with −∞ for experts of groups that a token does not take; of equal groups it takes the lower
// index.
Tensor in_best_groups(const Tensor& scores_TE, const RouterOptions& options, const kernels::RouterRule& rule) {
  if (options.groups == 0) return scores_TE;
  const Tensor scores_TGE = scores_TE.view({scores_TE.size(0), options.groups, -1});
  const Tensor of_groups_TG = rule.sigmoid
                                  ? std::get<0>(at::topk(scores_TGE, std::min<int64_t>(2, scores_TGE.size(2)))).sum(-1)
                                  : scores_TGE.amax(-1);
  const Tensor best = std::get<1>(at::sort(of_groups_TG, /*stable=*/true, /*dim=*/1, /*descending=*/true));
  const Tensor left_out =
      at::ones_like(of_groups_TG, at::kBool).scatter_(1, best.narrow(1, 0, options.groups_taken), false).unsqueeze(-1);
  return scores_TGE.masked_fill(left_out, -std::numeric_limits<double>::infinity()).view(scores_TE.sizes());
}

}  // namespace

NoiseNumbers noise_numbers(const RouterNoise& noise, int64_t logits_of_sequence) {
  return {CounterRandom(noise.seed, fmt::format("router_noise/{}/{}", noise.layer, noise.position.step)),
          noise.position.first_sequence * logits_of_sequence, noise.decides_alone() ? 1.0 : noise.stddev};
}

kernels::cuda::ChoiceGroups choice_groups(const BalanceOptions& options, const Tensor& ids_TK, int64_t num_sequences,
                                          int64_t num_experts) {
  ATHANOR_CHECK(num_sequences % options.group_sequences == 0,
                "moe.balance_group ({}) must divide the {} sequences that are routed at once", options.group_sequences,
                num_sequences);
  const int64_t groups = num_sequences / options.group_sequences;
  const kernels::cuda::ChoiceGroups in{groups, ids_TK.size(0) / std::max<int64_t>(groups, 1), ids_TK.size(1),
                                       num_experts};
  ATHANOR_CHECK_AS(Error, !needs_equal_shares(options.kind) || in.choices() % num_experts == 0,
                   "{} experts cannot have equal shares of {} choices", num_experts, in.choices());
  return in;
}

const RouterForm& RouterForm::of(const Tensor& logits_TE) {
  static const HostRouter host{};
  static const KernelRouter kernels{};
  static const PortableRouter portable{};
  switch (ops::device::form_of(logits_TE)) {
    case ops::device::Form::kHost: return host;
    case ops::device::Form::kKernels: return kernels;
    case ops::device::Form::kPortable: return portable;
  }
  fail<Error>("bug: a form of no kind");
}

// Returns the values by which experts are chosen: the scores, plus what is added only for choosing. If noise makes
// scores that no longer order a token's experts, its logits with noise do.
Tensor RouterForm::choosing_scores(const Tensor& logits_TE, const Tensor& scores_TE, const RouterOptions& options,
                                   const kernels::RouterRule& rule, int64_t num_sequences) const {
  Tensor scores = scores_TE;
  if (options.training && options.noise.decides_alone()) return noise_like(logits_TE, options.noise, num_sequences);
  if (options.training && options.noise.stddev > 0) {
    const Tensor noisy = logits_TE.to(at::kFloat) + noise_like(logits_TE, options.noise, num_sequences);
    scores = compute_scores(noisy, rule).scores_TE;
    const Tensor lost = loses_order(scores, rule);
    if (!options.bias_E.defined()) return at::where(lost, noisy, scores);
    scores = scores + options.bias_E;
    return is_queued() || lost.is_meta() || lost.any().item<bool>() ? at::where(lost, order_of(scores, noisy), scores)
                                                                    : scores;
  }
  return options.bias_E.defined() ? scores + options.bias_E : scores;
}

void RouterForm::balance(const RouterOptions& options, const Tensor& scores_TE, int64_t num_sequences,
                         Routing& r) const {
  if (options.balance.kind == Balance::kNone) return;
  const int64_t num_experts = scores_TE.size(1);
  const Tensor scores_TK = options.balance.needs_scores() ? scores_TE.gather(1, r.expert_ids_TK) : Tensor();
  const Tensor moved_and_dropped = r.counts.narrow(0, 2 * num_experts, 2);
  if (!options.balances_over_ranks()) {
    const auto in = choice_groups(options.balance, r.expert_ids_TK, num_sequences, num_experts);
    moved_and_dropped.copy_(balance_groups(options.balance, r.expert_ids_TK, scores_TK, in.groups, num_experts));
    return;
  }
  comm::Communicator& ranks = *options.balance_ranks;
  ATHANOR_CHECK(
      num_sequences * ranks.size() == options.balance.group_sequences,
      "moe.balance_group ({}) spans {} ranks, and this one routes {} sequences at once: their product must be "
      "the group",
      options.balance.group_sequences, ranks.size(), num_sequences);
  moved_and_dropped.copy_(balance_share(options.balance, ranks, r.expert_ids_TK, scores_TK, num_experts));
}

void RouterForm::decide(const Tensor& logits_TE, const Tensor& scores_TE, const RouterOptions& options,
                        const kernels::RouterRule& rule, int64_t num_sequences, Routing& r) const {
  const at::NoGradGuard no_grad;
  const Tensor chosen_by_TE =
      in_best_groups(choosing_scores(logits_TE, scores_TE, options, rule, num_sequences), options, rule);
  r.expert_ids_TK = choose(chosen_by_TE, options.k);
  if (!options.training) return;
  r.counts = at::zeros({2 * rule.width + 4}, logits_TE.options().dtype(at::kLong));
  r.count_BE = count_choices(r.expert_ids_TK, num_sequences, rule.width);
  balance(options, options.noise.decides_alone() ? chosen_by_TE : scores_TE, num_sequences, r);
  r.load_E = count_taken(r.expert_ids_TK, rule.width);
  r.counts.narrow(0, 0, rule.width).copy_(r.count_BE.sum(0));
  r.counts.narrow(0, rule.width, rule.width).copy_(r.load_E);
}

bool RouterOptions::balances_over_ranks() const { return balance_ranks && balance_ranks->size() > 1; }

Routing route(const Tensor& x_TD, const Weight& weight_ED, const RouterOptions& options, int64_t num_sequences,
              const Choices* saved) {
  const kernels::RouterRule rule{weight_ED.value.size(0), options.k, options.score == RouterScore::kSigmoid,
                                 options.norm_topk_prob, static_cast<float>(options.scaling_factor)};
  const Tensor product_TE = ops::linear(x_TD, weight_ED);
  const Tensor logits_TE =
      (options.logit_bias_E.defined() ? ops::affine(product_TE, {}, options.logit_bias_E) : product_TE).contiguous();
  return RouterForm::of(logits_TE).route(logits_TE, options, rule, num_sequences, saved);
}

Routing RouterForm::route(const Tensor& logits_TE, const RouterOptions& options, const kernels::RouterRule& rule,
                          int64_t num_sequences, const Choices* saved) const {
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
  const Tensor count = count_LE.to(bias_LE.device()).to(at::kDouble);
  const Tensor below = at::sign(count.mean(1, /*keepdim=*/true) - count);
  Tensor bias = bias_LE;
  bias.add_(below.to(at::kFloat), static_cast<float>(rate));
}

}  // namespace athanor::moe

#include "verify/portable/portable_router.h"

#include <fmt/core.h>

#include <limits>
#include <type_traits>

#include "base/random.h"
#include "verify/portable/portable_balance.h"

namespace athanor::inline verify::portable {
namespace {

using Rows = std::vector<std::vector<double>>;

Rows rows_of(const Tensor& x) {
  const Tensor values = x.detach().contiguous();
  const auto* value = values.const_data_ptr<double>();
  Rows rows(static_cast<size_t>(x.size(0)));
  for (auto& row : rows) row.assign(value, value + x.size(1)), value += x.size(1);
  return rows;
}

Tensor scores_of(const ModelConfig& model, const Tensor& logits) {
  return model.score() == RouterScore::kSigmoid ? at::sigmoid(logits) : at::softmax(logits, -1);
}

// Each number is a function of seed, layer, step, the token's position in the global batch, and the expert.
Tensor noise_of(const RunConfig& config, const Tensor& logits, const RoutedTokens& tokens) {
  const CounterRandom random(static_cast<uint64_t>(config.train.seed),
                             fmt::format("router_noise/{}/{}", tokens.layer, tokens.step));
  Tensor noise = at::empty(logits.sizes(), at::kDouble);
  auto* value = noise.data_ptr<double>();
  const auto first = static_cast<uint64_t>(tokens.first_sequence * (logits.numel() / tokens.num_sequences));
  for (uint64_t i = 0; i < static_cast<uint64_t>(logits.numel()); ++i)
    value[i] = config.moe.router_noise * random.normal(first + i);
  return noise;
}

// Balances each group of consecutive sequences.
Choices balance_groups(const RunConfig& config, const Choices& chosen, const Rows& scores, int64_t num_sequences) {
  if (config.moe.balance == Balance::kNone) return chosen;
  const size_t size = chosen.size() / static_cast<size_t>(num_sequences / config.moe.balance_group);
  Choices all;
  for (size_t begin = 0; begin < chosen.size(); begin += size) {
    const auto part = [&](const auto& list) {
      const auto from = list.begin() + static_cast<std::ptrdiff_t>(begin);
      return std::decay_t<decltype(list)>(from, from + static_cast<std::ptrdiff_t>(size));
    };
    const Choices group = balance(config.moe, part(chosen), part(scores), config.model.num_experts);
    all.insert(all.end(), group.begin(), group.end());
  }
  return all;
}

// Returns 1 for each expert that is among a token's choices.
Tensor mask_of(const Choices& choices, int64_t num_experts) {
  Tensor mask = at::zeros({static_cast<int64_t>(choices.size()), num_experts}, at::kDouble);
  auto* row = mask.data_ptr<double>();
  for (const auto& experts : choices) {
    for (const int64_t expert : experts) {
      if (expert != kDropped) row[expert] = 1;
    }
    row += num_experts;
  }
  return mask;
}

std::vector<int64_t> count(const Tensor& mask_TE) {
  const Tensor sums = mask_TE.sum(0).to(at::kLong);
  return {sums.const_data_ptr<int64_t>(), sums.const_data_ptr<int64_t>() + sums.numel()};
}

}  // namespace

// Experts of groups that a token does not take get −∞: those whose best score, or of sigmoids the sum of the two best,
// is below that of topk_group others.
Tensor leave_out_groups(const ModelConfig& model, const Tensor& scores_TE) {
  const int64_t tokens = scores_TE.size(0), size = model.num_experts / model.n_group;
  const Tensor ordered = std::get<0>(at::sort(scores_TE.view({tokens, model.n_group, size}), 2, /*descending=*/true));
  const int64_t counted = model.score() == RouterScore::kSigmoid ? std::min<int64_t>(2, size) : 1;
  const Tensor value_TG = ordered.narrow(2, 0, counted).sum(2).contiguous();
  const auto value = value_TG.accessor<double, 2>();
  const Tensor result = scores_TE.clone();
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t g = 0; g < model.n_group; ++g) {
      int64_t better = 0;
      for (int64_t other = 0; other < model.n_group; ++other)
        better += value[t][other] > value[t][g] || (value[t][other] == value[t][g] && other < g);
      if (better >= model.topk_group)
        result[t].narrow(0, g * size, size).fill_(-std::numeric_limits<double>::infinity());
    }
  }
  return result;
}

Routed route(const RunConfig& config, const Tensor& logits, const Tensor& bias_E, const RoutedTokens& tokens) {
  const ModelConfig& model = config.model;
  const int64_t experts = model.num_experts;
  const Tensor scores = scores_of(model, logits);
  const Tensor probs = model.score() == RouterScore::kSigmoid ? scores / scores.sum(-1, true) : scores;

  Tensor chosen_by = scores;
  if (config.moe.router_noise > 0) chosen_by = scores_of(model, logits + noise_of(config, logits, tokens));
  if (bias_E.defined()) chosen_by = chosen_by + bias_E;
  if (model.n_group > 0) chosen_by = leave_out_groups(model, chosen_by);
  const Choices chosen = choose_best(rows_of(chosen_by), model.num_experts_per_tok);
  const Choices taken = balance_groups(config, chosen, rows_of(scores), tokens.num_sequences);
  const Tensor chosen_TE = mask_of(chosen, experts), taken_TE = mask_of(taken, experts);
  // A choice that was dropped counts among those that norm_topk_prob scales to sum to 1.
  const Tensor in_sum_TE = config.moe.balance == Balance::kCapacity ? chosen_TE : taken_TE;

  Routed r;
  r.weights_TE = scores * taken_TE;
  if (model.norms_topk()) r.weights_TE = r.weights_TE / (scores * in_sum_TE).sum(-1, true);
  r.weights_TE = r.weights_TE * model.routed_scaling_factor;
  const auto by_sequence = [&](const Tensor& x) { return x.view({tokens.num_sequences, -1, experts}).sum(1); };
  r.prob_sum_BE = by_sequence(probs);
  r.z_sum = at::logsumexp(logits, {-1}).square().sum();
  r.count_BE = by_sequence(chosen_TE);
  r.entropy_sum = -at::xlogy(probs, probs).sum().item<double>();
  r.chosen = count(chosen_TE);
  r.taken = count(taken_TE);
  r.dropped = (chosen_TE.sum() - taken_TE.sum()).item().toLong();
  r.moved = (taken_TE * (1 - chosen_TE)).sum().item().toLong();
  return r;
}

Tensor balancing_loss(const RunConfig& config, const std::vector<Routed>& layers, const Tensor& previous_share_LE) {
  const auto experts = static_cast<double>(config.model.num_experts);
  const auto tokens = static_cast<double>(config.data.seq_len);  // tokens of a sequence
  if (config.moe.aux_scope == AuxScope::kTransformers) {
    // E · Σ_e share · mean probability over the pool of all layers' tokens, as a sum over layers and sequences.
    Tensor counts = at::zeros({config.model.num_experts}, at::kDouble), probs = counts;
    double pooled = 0;
    for (const Routed& layer : layers) {
      counts = counts + layer.count_BE.sum(0);
      probs = probs + layer.prob_sum_BE.sum(0);
      pooled += static_cast<double>(layer.count_BE.size(0));
    }
    return pooled * experts * (counts / (pooled * tokens) * (probs / (pooled * tokens))).sum();
  }
  Tensor total = at::zeros({}, at::kDouble);
  for (size_t l = 0; l < layers.size(); ++l) {
    const Tensor share = config.moe.aux_scope == AuxScope::kGlobal ? previous_share_LE[static_cast<int64_t>(l)]
                                                                   : layers[l].count_BE / tokens;
    total = total + experts * (share * (layers[l].prob_sum_BE / tokens)).sum();
  }
  return total;
}

}  // namespace athanor::inline verify::portable

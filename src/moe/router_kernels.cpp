#include <torch/csrc/autograd/custom_function.h>

#include "comm/communicator.h"
#include "kernels/cuda/noise.h"
#include "kernels/cuda/router.h"
#include "moe/balance_rule.h"
#include "moe/router_form.h"
#include "ops/device/on_stream.h"

namespace athanor::moe {
namespace {

namespace cuda = kernels::cuda;
using kernels::RouterRule;
using ops::device::data;
using ops::device::OnStream;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Returns a tensor without values on the device of the logits.
Tensor empty(const Tensor& logits_TE, at::IntArrayRef shape, at::ScalarType type) {
  return at::empty(shape, logits_TE.options().dtype(type));
}

// What the kernels leave: `chosen` are the choices before balancing, `ids` those after it.
struct TokenRows {
  Tensor scores_TE, logsumexp_T, facts, chosen_TK, ids_TK, weights_TK, chosen_by_TE, noise_TE;

  cuda::RowFacts* facts_of_rows() const { return reinterpret_cast<cuda::RowFacts*>(data<double>(facts)); }
};

struct RouteCall {
  const RouterOptions& options;
  const RouterRule& rule;
  int64_t num_sequences;
  const Choices* saved;

  bool balances() const { return !saved && options.training && options.balance.kind != Balance::kNone; }
};

// Fills in noise and bias, by which experts are chosen.
cuda::ChoosingRule choosing_rule(const Tensor& logits_TE, const RouteCall& call, TokenRows& rows) {
  const RouterNoise& noise = call.options.noise;
  const bool noisy = call.options.training && noise.stddev > 0;
  cuda::ChoosingRule choosing;
  if (!noisy && !call.options.bias_E.defined()) return choosing;
  rows.chosen_by_TE = empty(logits_TE, logits_TE.sizes(), at::kFloat);
  choosing.chosen_by = data<float>(rows.chosen_by_TE);
  choosing.bias = data<float>(call.options.bias_E);
  if (!noisy) return choosing;
  rows.noise_TE = choosing.bias ? at::empty_like(rows.chosen_by_TE) : rows.chosen_by_TE;
  choosing.noise = data<float>(rows.noise_TE);
  choosing.noise_alone = noise.decides_alone();
  const NoiseNumbers numbers = noise_numbers(noise, logits_TE.numel() / std::max<int64_t>(call.num_sequences, 1));
  cuda::fill_normal(OnStream(logits_TE), numbers.random.key(), data<float>(rows.noise_TE), numbers.first,
                    logits_TE.numel(), numbers.scale);
  return choosing;
}

// What a balance group is made of: the rows of this rank, or, if its sequences are spread over ranks, those of all of
// them, so that each of these ranks balances the whole group.
struct BalanceRows {
  Tensor chosen_TK, scores_TE;
  int64_t num_sequences, first;  // the first row that is this rank's
};

BalanceRows balance_rows(const RouteCall& call, const TokenRows& rows) {
  const BalanceOptions& options = call.options.balance;
  BalanceRows in{rows.chosen_TK, {}, call.num_sequences, 0};
  if (options.needs_scores()) in.scores_TE = call.options.noise.decides_alone() ? rows.chosen_by_TE : rows.scores_TE;
  if (!call.options.balances_over_ranks()) return in;
  comm::Communicator& ranks = *call.options.balance_ranks;
  in.num_sequences *= ranks.size();
  in.first = ranks.rank() * rows.chosen_TK.size(0);
  in.chosen_TK = reads_choices(options.kind)
                     ? gather_rows(ranks, rows.chosen_TK)
                     : at::empty({ranks.size() * rows.chosen_TK.size(0), call.rule.k}, rows.chosen_TK.options());
  if (in.scores_TE.defined()) in.scores_TE = gather_rows(ranks, in.scores_TE);
  return in;
}

// Sets ids_TK.
void balance(const RouteCall& call, TokenRows& rows) {
  const BalanceRows group = balance_rows(call, rows);
  const Tensor ids_TK = at::empty_like(group.chosen_TK);
  const BalanceOptions& options = call.options.balance;
  balance_rule(options.kind)
      .launch(options,
              {group.chosen_TK, group.scores_TE,
               choice_groups(options, group.chosen_TK, group.num_sequences, call.rule.width)},
              ids_TK);
  rows.ids_TK = ids_TK.narrow(0, group.first, rows.chosen_TK.size(0));
}

TokenRows compute_rows(const Tensor& logits_TE, const RouteCall& call) {
  const int64_t tokens = logits_TE.size(0);
  TokenRows rows;
  rows.scores_TE = empty(logits_TE, logits_TE.sizes(), at::kFloat);
  rows.logsumexp_T = empty(logits_TE, {tokens}, at::kFloat);
  rows.weights_TK = empty(logits_TE, {tokens, call.rule.k}, at::kFloat);
  if (call.options.training) rows.facts = empty(logits_TE, {tokens * 2}, at::kDouble);
  static_assert(sizeof(cuda::RowFacts) == 2 * sizeof(double));
  rows.chosen_TK =
      call.saved ? call.saved->expert_ids_TK.contiguous() : empty(logits_TE, {tokens, call.rule.k}, at::kLong);
  rows.ids_TK = rows.chosen_TK;
  const cuda::ChoosingRule choosing = call.saved ? cuda::ChoosingRule{} : choosing_rule(logits_TE, call, rows);
  const cuda::RoutedRows out{data<float>(rows.scores_TE), data<float>(rows.logsumexp_T), rows.facts_of_rows(),
                             data<int64_t>(rows.chosen_TK), call.balances() ? nullptr : data<float>(rows.weights_TK)};
  const OnStream stream(logits_TE);
  ops::with_element(logits_TE, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    cuda::route_rows<T>(stream, data<T>(logits_TE), call.rule, choosing, call.saved ? out.ids : nullptr, out, tokens);
  });
  if (call.balances()) {
    balance(call, rows);
    cuda::router_weights(stream, out.scores, data<int64_t>(rows.ids_TK), data<float>(rows.weights_TK), tokens,
                         call.rule);
  }
  return rows;
}

void sum_rows(const Tensor& logits_TE, const RouteCall& call, const TokenRows& rows, Routing& r) {
  const int64_t width = call.rule.width, sequences = call.num_sequences;
  const int64_t tokens = logits_TE.size(0) / std::max<int64_t>(sequences, 1);
  const Tensor workspace = empty(logits_TE, {cuda::router_sums_workspace(sequences, tokens, width)}, at::kDouble);
  r.prob_sum_BE = empty(logits_TE, {sequences, width}, at::kFloat);
  r.z_sum = empty(logits_TE, {}, at::kFloat);
  if (!call.saved) {
    r.count_BE = empty(logits_TE, {sequences, width}, at::kFloat);
    r.counts = empty(logits_TE, {cuda::router_counts(width)}, at::kLong);
    r.load_E = r.counts.narrow(0, width, width);
  }
  cuda::router_sums(
      OnStream(logits_TE), data<float>(rows.scores_TE), data<float>(rows.logsumexp_T), rows.facts_of_rows(),
      data<int64_t>(rows.chosen_TK), data<int64_t>(rows.ids_TK),
      {data<float>(r.prob_sum_BE), data<float>(r.z_sum), data<float>(r.count_BE), data<int64_t>(r.counts)},
      data<double>(workspace), sequences, tokens, call.rule);
}

struct Route : torch::autograd::Function<Route> {
  static variable_list forward(AutogradContext* ctx, const Tensor& logits_TE, const RouteCall& call, Routing* r) {
    const TokenRows rows = compute_rows(logits_TE, call);
    r->expert_ids_TK = rows.ids_TK;
    sum_rows(logits_TE, call, rows, *r);
    ctx->save_for_backward({call.rule.sigmoid ? logits_TE : Tensor()});
    auto& saved = ctx->saved_data;
    saved["rows"] = std::vector<Tensor>{rows.scores_TE, rows.logsumexp_T, rows.ids_TK};
    saved["dtype"] = static_cast<int64_t>(logits_TE.scalar_type());
    saved["num_sequences"] = call.num_sequences;
    saved["sigmoid"] = call.rule.sigmoid;
    saved["norm"] = call.rule.norm_topk_prob;
    saved["scaling"] = static_cast<double>(call.rule.scaling_factor);
    return {rows.weights_TK, r->prob_sum_BE, r->z_sum};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    auto& saved = ctx->saved_data;
    const auto rows = saved["rows"].toTensorVector();
    const Tensor &scores = rows[0], &logsumexp = rows[1], &ids = rows[2], logits = ctx->get_saved_variables()[0];
    const RouterRule rule{scores.size(1), ids.size(1), saved["sigmoid"].toBool(), saved["norm"].toBool(),
                          static_cast<float>(saved["scaling"].toDouble())};
    const int64_t sequences = saved["num_sequences"].toInt();
    for (Tensor& grad : grads) grad = ops::device::contiguous_or_none(grad);
    const Tensor dlogits = empty(scores, scores.sizes(), static_cast<at::ScalarType>(saved["dtype"].toInt()));
    const OnStream stream(scores);
    ops::with_element(dlogits, [&](auto* tag) {
      using T = std::decay_t<decltype(*tag)>;
      cuda::router_backward<T>(stream, data<T>(logits), data<float>(scores), data<float>(logsumexp), data<int64_t>(ids),
                               data<float>(grads[0]), data<float>(grads[1]), data<float>(grads[2]), data<T>(dlogits),
                               sequences, scores.size(0) / std::max<int64_t>(sequences, 1), rule);
    });
    return {dlogits, Tensor(), Tensor()};
  }
};

}  // namespace

Routing KernelRouter::route(const Tensor& logits_TE, const RouterOptions& options, const RouterRule& rule,
                            int64_t num_sequences, const Choices* saved) const {
  if (options.groups > 0) return PortableRouter::route(logits_TE, options, rule, num_sequences, saved);
  const RouteCall call{options, rule, num_sequences, saved};
  Routing r;
  if (!options.training) {
    const at::NoGradGuard no_grad;
    const TokenRows rows = compute_rows(logits_TE, call);
    r.weights_TK = rows.weights_TK;
    r.expert_ids_TK = rows.ids_TK;
    return r;
  }
  const auto outputs = Route::apply(logits_TE, call, &r);
  r.weights_TK = outputs[0];
  r.prob_sum_BE = outputs[1];
  r.z_sum = outputs[2];
  return r;
}

}  // namespace athanor::moe

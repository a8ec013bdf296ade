#include "blocks/sparse.h"

#include "ops/row_gate.h"

namespace athanor::inline blocks {

SparseBlock::SparseBlock(const SparseSpec& spec, const ParameterStore& parameters, const moe::RoutingPolicy& policy,
                         const TensorRanks& ranks)
    : ranks_(ranks), num_experts_(spec.experts), combine_(policy.combine),
      router_(parameters.weight(spec.router.weight())), experts_{
                                                            spec.gate.empty() ? Weight{} : parameters.weight(spec.gate),
                                                            parameters.weight(spec.up), parameters.weight(spec.down)} {
  experts_.unit = spec.unit;
  if (!spec.down_bias.empty()) {
    experts_.gate_bias_LF = parameters.weight(spec.gate_bias);
    experts_.up_bias_LF = parameters.weight(spec.up_bias);
    experts_.down_bias_LD = parameters.weight(spec.down_bias);
    experts_.first_output = ranks.rank() * experts_.down_bias_LD.value.size(1);
  }
  if (spec.router.has_bias) router_options_.logit_bias_E = parameters.weight(spec.router.bias());
  router_options_.k = spec.choices;
  router_options_.score = spec.score;
  router_options_.norm_topk_prob = spec.norm_topk_prob;
  router_options_.scaling_factor = spec.scaling_factor;
  router_options_.groups = spec.groups, router_options_.groups_taken = spec.groups_taken;
  router_options_.balance = policy.balance;
  router_options_.balance_ranks = policy.balance_ranks;
  router_options_.noise = {policy.noise_stddev, policy.seed, spec.layer, {}};
  if (spec.shared) shared_.emplace(*spec.shared, parameters);
  if (spec.shared_gate) shared_gate_.emplace(*spec.shared_gate, parameters);
}

// Returns a partial sum with several ranks, which all have the whole gate: its gradient is added up.
Tensor SparseBlock::shared_experts(const Tensor& whole_TD, const Tensor& x_TD) const {
  const Tensor y_TD = shared_->forward(x_TD);
  return shared_gate_ ? ops::row_gate(y_TD, sum_gradient(shared_gate_->forward(whole_TD), ranks_)) : y_TD;
}

void SparseBlock::set_dispatch(std::shared_ptr<moe::Dispatch> dispatch) {
  const int64_t local = experts_.num_experts(), ranks = dispatch ? dispatch->group().size() : 1;
  ATHANOR_ASSERT(local * ranks == num_experts_);
  dispatch_ = std::move(dispatch);
}

Tensor SparseBlock::forward(const TensorParallelInput& x, std::vector<moe::Routing>* routings,
                            const moe::Choices* saved, const moe::BatchPosition& position) const {
  const int64_t width = x.replicated.size(-1);
  const Tensor whole_TD = x.replicated.reshape({-1, width});
  const Tensor x_TD = ranks_.alone() ? whole_TD : x.partitioned.reshape({-1, width});
  moe::RouterOptions options = router_options_;
  options.training = routings != nullptr;
  options.noise.position = position;
  moe::Routing routing = moe::route(whole_TD, router_, options, x.replicated.size(0), saved);
  const Tensor weights_TK = sum_gradient(routing.weights_TK, ranks_), ids_TK = routing.expert_ids_TK;
  // In training every rank has the same number of tokens; in evaluation a rank may have fewer, or none.
  if (dispatch_ && routings) routing.row_counts = saved ? saved->counts : std::make_shared<moe::RowCounts>();
  moe::KnownTokens known{.equal = routings != nullptr, .counts = routing.row_counts};
  if (routings)
    known.most_of_expert = moe::most_choices_of_expert(options.balance, x.replicated.size(0), ids_TK.size(0),
                                                       ids_TK.size(1), num_experts_);
  Tensor y_TD, shared_TD;
  const auto share = [&] {
    if (shared_) shared_TD = shared_experts(whole_TD, x_TD);
  };
  if (dispatch_) {
    y_TD = dispatch_->experts(x_TD, weights_TK, ids_TK, experts_, combine_, known, share);
  } else {
    y_TD = ops::experts(x_TD, weights_TK, ids_TK, experts_, 0, num_experts_, combine_);
    share();
  }
  if (shared_TD.defined()) y_TD = y_TD + shared_TD;
  if (routings) routings->push_back(std::move(routing));
  return y_TD.view(x.replicated.sizes());
}

ops::ExpertForm form_of_experts(const SparseSpec& spec) {
  return {!spec.gate.empty(), !spec.down_bias.empty(), spec.unit};
}

}  // namespace athanor::inline blocks

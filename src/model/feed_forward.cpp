#include "model/feed_forward.h"

#include "ops/linear.h"
#include "ops/swiglu.h"

namespace athanor::inline model {

FeedForward::SwiGlu FeedForward::make_swiglu(const ParameterStore& parameters, const std::string& prefix) {
  return {parameters.weight(prefix + "gate_proj.weight"), parameters.weight(prefix + "up_proj.weight"),
          parameters.weight(prefix + "down_proj.weight")};
}

Tensor FeedForward::SwiGlu::forward(const Tensor& x) const {
  return ops::linear(ops::swiglu(ops::linear(x, gate), ops::linear(x, up)), down);
}

FeedForward::FeedForward(const ModelConfig& model, const ParameterStore& parameters, int64_t layer,
                         const std::string& prefix, const moe::RoutingPolicy& policy, const TensorRanks& ranks)
    : ranks_(ranks), sparse_(model.is_sparse_layer(layer)), num_experts_(model.num_experts), combine_(policy.combine) {
  const std::string mlp = prefix + "mlp.";
  if (!sparse_) {
    dense_ = make_swiglu(parameters, mlp);
    return;
  }
  router_options_.k = model.num_experts_per_tok;
  router_options_.score = model.score().value();
  router_options_.norm_topk_prob = model.norm_topk_prob;
  router_options_.scaling_factor = model.routed_scaling_factor;
  router_options_.balance = policy.balance;
  router_options_.balance_ranks = policy.balance_ranks;
  router_options_.noise = {policy.noise_stddev, policy.seed, layer, {}};
  router_ = parameters.weight(mlp + "gate.weight");
  experts_ = {parameters.weight(mlp + "experts.gate_proj.weight"), parameters.weight(mlp + "experts.up_proj.weight"),
              parameters.weight(mlp + "experts.down_proj.weight")};
  if (model.num_shared_experts > 0) shared_ = make_swiglu(parameters, mlp + "shared_experts.");
}

void FeedForward::set_dispatch(std::shared_ptr<moe::Dispatch> dispatch) {
  if (!sparse_) return;
  const int64_t local = experts_.gate_LFD.value.size(0), ranks = dispatch ? dispatch->group().size() : 1;
  ATHANOR_ASSERT(local * ranks == num_experts_);
  dispatch_ = std::move(dispatch);
}

Tensor FeedForward::forward(const TensorParallelInput& x, std::vector<moe::Routing>* routings,
                            const moe::Choices* saved, const moe::BatchPosition& position) const {
  return sparse_ ? forward_sparse(x, routings, saved, position) : dense_.forward(x.partitioned);
}

Tensor FeedForward::forward_sparse(const TensorParallelInput& x, std::vector<moe::Routing>* routings,
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
    if (shared_.gate.defined()) shared_TD = shared_.forward(x_TD);
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

}  // namespace athanor::inline model

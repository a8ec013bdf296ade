#include "model/feed_forward.h"

#include "ops/linear.h"
#include "ops/swiglu.h"

namespace athanor {

FeedForward::FeedForward(const ModelConfig& model, const ParameterStore& parameters, int64_t layer,
                         const std::string& prefix)
    : sparse_(model.is_sparse_layer(layer)),
      num_experts_(model.num_experts), router_options_{.k = model.num_experts_per_tok,
                                                       .norm_topk_prob = model.norm_topk_prob} {
  const std::string mlp = prefix + "mlp.";
  if (sparse_) {
    router_ = parameters.weight(mlp + "gate.weight");
    experts_ = {parameters.weight(mlp + "experts.gate_proj.weight"), parameters.weight(mlp + "experts.up_proj.weight"),
                parameters.weight(mlp + "experts.down_proj.weight")};
  } else {
    gate_ = parameters.weight(mlp + "gate_proj.weight");
    up_ = parameters.weight(mlp + "up_proj.weight");
    down_ = parameters.weight(mlp + "down_proj.weight");
  }
}

Tensor FeedForward::forward(const Tensor& x, std::vector<moe::Routing>* routings, const moe::Choices* saved) const {
  if (sparse_) return forward_sparse(x, routings, saved);
  return ops::linear(ops::swiglu(ops::linear(x, gate_), ops::linear(x, up_)), down_);
}

Tensor FeedForward::forward_sparse(const Tensor& x, std::vector<moe::Routing>* routings,
                                   const moe::Choices* saved) const {
  const Tensor x_TD = x.reshape({-1, x.size(-1)});
  moe::Routing routing = moe::route(x_TD, router_, router_options_, x.size(0), saved);
  const Tensor y_TD = ops::experts(x_TD, routing.weights_TK, routing.expert_ids_TK, experts_, 0, num_experts_);
  if (routings) routings->push_back(std::move(routing));
  return y_TD.view(x.sizes());
}

}  // namespace athanor

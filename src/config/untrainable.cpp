#include "config/untrainable.h"

#include <fmt/core.h>

namespace athanor::inline config {
namespace {

// Why a router's only weight is a constant; "" if it is none. A weight p / p is 1, and so is a softmax of one logit.
std::string why_weight_is_constant(const ModelConfig& model) {
  if (model.num_experts == 1 && model.score() == RouterScore::kSoftmax)
    return "model.num_experts = 1 gives the only expert the weight 1 whatever its logit is; set model.family to a "
           "dense "
           "one, or num_experts to 2 or more";
  if (model.num_experts_per_tok == 1 && model.norms_topk())
    return "model.num_experts_per_tok = 1 with model.norm_topk_prob = true, as always in mixtral and gpt_oss, gives "
           "the chosen "
           "expert "
           "the weight 1 whatever its score is; set num_experts_per_tok to 2 or more, or, in other families, "
           "norm_topk_prob = false";
  return "";
}

std::string describe_routers(const RunConfig& config) {
  const std::string why = why_weight_is_constant(config.model);
  if (why.empty()) return "";
  // The probabilities of a single expert are constant, too.
  const bool balances = config.moe.router_aux_loss_coef > 0 && config.model.num_experts > 1;
  if (balances || config.moe.router_z_loss_coef > 0)
    return "the routers learn from moe.router_aux_loss_coef and moe.router_z_loss_coef alone, and "
           "nothing from the model's loss: " +
           why;
  return "the routers cannot learn: " + why;
}

}  // namespace

std::vector<std::string> find_untrainable(const RunConfig& config) {
  std::vector<std::string> found;
  if (config.model.is_moe()) {
    if (std::string routers = describe_routers(config); !routers.empty()) found.push_back(std::move(routers));
  }
  if (config.data.seq_len == 2)
    found.emplace_back(
        "queries and keys (self_attn.q_proj, k_proj and their norms) cannot learn: with data.seq_len = 2 the one token "
        "that predicts attends to itself alone; prepare the data with a larger --seq-len");
  return found;
}

}  // namespace athanor::inline config

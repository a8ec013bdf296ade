#include "moe/balance_loss.h"

namespace athanor::moe {

AuxScope parse_aux_scope(const std::string& name) {
  if (name == "sequence") return AuxScope::kSequence;
  if (name == "global") return AuxScope::kGlobal;
  ATHANOR_CHECK(name == "transformers", "moe.aux_scope: expected sequence, global or transformers, got {}", name);
  return AuxScope::kTransformers;
}

Tensor balance_loss_sum(AuxScope scope, const std::vector<Routing>& layers, int64_t tokens,
                        const Tensor& previous_share) {
  const auto per_token = 1.0 / static_cast<double>(tokens);
  const int64_t num_sequences = layers[0].count_BE.size(0);
  const auto num_experts = static_cast<double>(layers[0].count_BE.size(1));
  if (scope == AuxScope::kTransformers) {
    Tensor count, prob;
    for (const Routing& layer : layers) {
      const Tensor c = layer.count_BE.sum(0), p = layer.prob_sum_BE.sum(0);
      count = count.defined() ? count + c : c;
      prob = prob.defined() ? prob + p : p;
    }
    // share · mean over n = layers · sequences · tokens, times layers · sequences for the common scale.
    const double pooled = static_cast<double>(static_cast<int64_t>(layers.size()) * num_sequences);
    return (count * prob).sum() * (num_experts * per_token * per_token / pooled);
  }
  Tensor total;
  for (size_t l = 0; l < layers.size(); ++l) {
    const Tensor share_BE = scope == AuxScope::kSequence
                                ? layers[l].count_BE * per_token
                                : previous_share[static_cast<int64_t>(l)].expand_as(layers[l].count_BE);
    const Tensor layer_sum = (share_BE * layers[l].prob_sum_BE).sum() * (num_experts * per_token);
    total = total.defined() ? total + layer_sum : layer_sum;
  }
  return total;
}

}  // namespace athanor::moe

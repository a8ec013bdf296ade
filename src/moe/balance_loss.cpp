#include "moe/balance_loss.h"

namespace athanor::moe {

namespace {

Tensor stacked(const std::vector<Routing>& layers, Tensor Routing::*of) {
  std::vector<Tensor> parts;
  for (const Routing& layer : layers) parts.push_back(layer.*of);
  return at::stack(parts);
}

// The sum of all layers at once: on a device, ops that are launched for each layer cost more than what they compute.
Tensor sum_on_device(AuxScope scope, const std::vector<Routing>& layers, double per_token,
                     const Tensor& previous_share) {
  const Tensor prob_LBE = stacked(layers, &Routing::prob_sum_BE);
  const auto num_layers = static_cast<double>(prob_LBE.size(0)), num_sequences = static_cast<double>(prob_LBE.size(1)),
             num_experts = static_cast<double>(prob_LBE.size(2));
  if (scope == AuxScope::kGlobal) return (previous_share.unsqueeze(1) * prob_LBE).sum() * (num_experts * per_token);
  const Tensor count_LBE = stacked(layers, &Routing::count_BE);
  const double scale = num_experts * per_token * per_token;
  if (scope == AuxScope::kSequence) return (count_LBE * prob_LBE).sum() * scale;
  const auto over_batch = [](const Tensor& x_LBE) { return x_LBE.sum(at::IntArrayRef{0, 1}); };
  return (over_batch(count_LBE) * over_batch(prob_LBE)).sum() * (scale / (num_layers * num_sequences));
}

}  // namespace

Tensor z_loss_sum(const std::vector<Routing>& layers) {
  if (!layers[0].z_sum.is_cpu()) return stacked(layers, &Routing::z_sum).sum();
  Tensor z;
  for (const Routing& layer : layers) z = z.defined() ? z + layer.z_sum : layer.z_sum;
  return z;
}

Tensor balance_loss_sum(AuxScope scope, const std::vector<Routing>& layers, int64_t tokens,
                        const Tensor& previous_share) {
  const auto per_token = 1.0 / static_cast<double>(tokens);
  if (!layers[0].count_BE.is_cpu()) return sum_on_device(scope, layers, per_token, previous_share);
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

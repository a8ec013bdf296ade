#include "moe/balance_loss.h"

#include "ops/balance_sums.h"

namespace athanor::moe {

namespace {

std::vector<Tensor> of_layers(const std::vector<Routing>& layers, Tensor Routing::*of) {
  std::vector<Tensor> parts;
  for (const Routing& layer : layers) parts.push_back(layer.*of);
  return parts;
}

}  // namespace

Tensor z_loss_sum(const std::vector<Routing>& layers) { return ops::sum_of_layers(of_layers(layers, &Routing::z_sum)); }

Tensor balance_loss_sum(AuxScope scope, const std::vector<Routing>& layers, int64_t tokens,
                        const Tensor& previous_share) {
  const double per_token = 1.0 / static_cast<double>(tokens);
  const auto prob_sum_BE = of_layers(layers, &Routing::prob_sum_BE);
  if (scope == AuxScope::kGlobal) return ops::balance_by_share(previous_share, prob_sum_BE, per_token);
  const auto count_BE = of_layers(layers, &Routing::count_BE);
  return scope == AuxScope::kSequence ? ops::balance_by_sequence(count_BE, prob_sum_BE, per_token)
                                      : ops::balance_of_all(count_BE, prob_sum_BE, per_token);
}

}  // namespace athanor::moe

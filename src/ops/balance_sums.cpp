#include "ops/balance_sums.h"

namespace athanor::ops {
namespace {

using Layers = std::span<const Tensor>;

Tensor stacked(Layers layers) { return at::stack(at::TensorList(layers.data(), layers.size())); }

double num_experts(Layers layers) { return static_cast<double>(layers.front().size(1)); }

// Adds term(layer) in order.
template <class Term>
Tensor sum_in_order(size_t layers, Term term) {
  Tensor total;
  for (size_t l = 0; l < layers; ++l) total = l == 0 ? term(l) : total + term(l);
  return total;
}

}  // namespace

Tensor sum_of_layers(Layers layers) {
  if (!on_host(layers.front())) return stacked(layers).sum();
  return sum_in_order(layers.size(), [&](size_t l) { return layers[l]; });
}

Tensor balance_by_sequence(Layers count_BE, Layers prob_sum_BE, double per_token) {
  const double scale = num_experts(count_BE) * per_token;
  if (!on_host(count_BE.front())) return (stacked(count_BE) * stacked(prob_sum_BE)).sum() * (scale * per_token);
  return sum_in_order(count_BE.size(),
                      [&](size_t l) { return (count_BE[l] * per_token * prob_sum_BE[l]).sum() * scale; });
}

Tensor balance_by_share(const Tensor& share_LE, Layers prob_sum_BE, double per_token) {
  const double scale = num_experts(prob_sum_BE) * per_token;
  if (!on_host(share_LE)) return (share_LE.unsqueeze(1) * stacked(prob_sum_BE)).sum() * scale;
  return sum_in_order(prob_sum_BE.size(), [&](size_t l) {
    return (share_LE[static_cast<int64_t>(l)].expand_as(prob_sum_BE[l]) * prob_sum_BE[l]).sum() * scale;
  });
}

Tensor balance_of_all(Layers count_BE, Layers prob_sum_BE, double per_token) {
  // share · mean over n = layers · sequences · tokens, times layers · sequences for the common scale.
  const double pooled = static_cast<double>(std::ssize(count_BE) * count_BE.front().size(0)),
               scale = num_experts(count_BE) * per_token * per_token / pooled;
  const auto over_batch = [](Layers layers) {
    if (!on_host(layers.front())) return stacked(layers).sum(at::IntArrayRef{0, 1});
    return sum_in_order(layers.size(), [&](size_t l) { return layers[l].sum(0); });
  };
  return (over_batch(count_BE) * over_batch(prob_sum_BE)).sum() * scale;
}

}  // namespace athanor::ops

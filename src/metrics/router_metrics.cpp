#include "metrics/router_metrics.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "arch/model_spec.h"
#include "base/log.h"
#include "base/text.h"

namespace athanor::inline metrics {
namespace {

// Returns the least load that at least 95 of 100 experts do not exceed.
int64_t percentile_95(std::vector<int64_t> loads) {
  const size_t rank = (loads.size() * 95 + 99) / 100;  // 1-based, rounded up
  std::ranges::nth_element(loads, loads.begin() + static_cast<int64_t>(rank) - 1);
  return loads[rank - 1];
}

// "model.layers.3.mlp.gate" of each sparse layer.
std::vector<std::string> names_of_routers(const ModelConfig& model) {
  std::vector<std::string> names;
  for (const LayerSpec& layer : make_model_spec(model).layers) {
    if (layer.is_sparse()) names.push_back(layer.sparse().router.name);
  }
  return names;
}

}  // namespace

void describe_routers(const RouterCounts& counts, int64_t tokens, StepMetrics& m) {
  if (!counts.defined()) return;
  const int64_t num_experts = counts.taken.size(1);
  double entropy_sum = 0;
  for (int64_t layer = 0; layer < counts.taken.size(0); ++layer) {
    const Tensor row = counts.taken[layer].contiguous();
    const std::span taken(row.const_data_ptr<int64_t>(), static_cast<size_t>(num_experts));
    const auto choices = counts.chosen[layer].sum().item<double>();
    const double mean = std::max(row.sum().item<double>() / static_cast<double>(num_experts), 1e-300);
    RouterMetrics router;
    router.load_max_over_mean = static_cast<double>(std::ranges::max(taken)) / mean;
    router.load_p95_over_mean = static_cast<double>(percentile_95({taken.begin(), taken.end()})) / mean;
    router.dead_experts = std::ranges::count(taken, 0);
    router.reassigned_share = counts.moved[layer].item<double>() / std::max(choices, 1.0);
    router.dropped_share = counts.dropped[layer].item<double>() / std::max(choices, 1.0);
    router.entropy = counts.entropy_sum[layer].item<double>() / static_cast<double>(tokens);
    m.routers.push_back(router);
    entropy_sum += router.entropy;
  }
  if (counts.to_rank.defined()) {
    m.tokens_per_dest_rank = {counts.to_rank.max().item<double>(), counts.to_rank.to(at::kDouble).mean().item<double>(),
                              counts.to_rank.min().item<double>()};
  }
  m.router_entropy = entropy_sum / static_cast<double>(counts.taken.size(0));
}

void check_first_routing(const ModelConfig& model, const RouterCounts& counts, int64_t tokens) {
  if (!counts.defined() || model.num_experts_per_tok == model.num_experts) return;
  std::vector<std::string> flat, same;
  const auto routers = names_of_routers(model);
  for (size_t i = 0; i < routers.size(); ++i) {
    const Tensor chosen = counts.chosen[static_cast<int64_t>(i)];
    if (counts.flat[static_cast<int64_t>(i)].item<int64_t>() == tokens) {
      flat.push_back(routers[i]);
    } else if (tokens > 1 && chosen.max().item<int64_t>() == tokens &&
               chosen.count_nonzero().item<int64_t>() == model.num_experts_per_tok) {
      same.push_back(routers[i]);
    }
  }
  if (!same.empty()) {
    log::warn_on_all(
        "{}: all {} tokens of the first step chose the same {} of {} experts; look at the router's weights", join(same),
        tokens, model.num_experts_per_tok, model.num_experts);
  }
  ATHANOR_CHECK(
      flat.empty(),
      "{}: the scores of all {} experts are equal for each of the {} tokens of the first step, so that all go "
      "to the first {} and stay there; initialise so that routers spread (model.initializer_range is {}), or "
      "start from another folder",
      join(flat), model.num_experts, tokens, model.num_experts_per_tok, model.initializer_range);
}

}  // namespace athanor::inline metrics

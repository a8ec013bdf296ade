#include "layout/width_groups.h"

#include <algorithm>
#include <map>

#include "arch/inventory.h"
#include "arch/width_scaling.h"

namespace athanor::inline layout {
namespace {

// The names of the model's parameters by their factor, without those whose factor is 1.
std::map<double, std::vector<std::string>> names_by_factor(const RunConfig& config, const std::string& optimizer) {
  const double ratio = width_ratio(config.optimizer, config.model);
  std::map<double, std::vector<std::string>> names;
  for (const ParameterSpec& spec : make_inventory(config.model)) {
    const double factor = rate_factor(optimizer, config.optimizer.muon_scale, spec.width, ratio);
    if (factor != 1) names[factor].push_back(spec.name);
  }
  for (auto& [factor, of_factor] : names) std::ranges::sort(of_factor);
  return names;
}

}  // namespace

std::vector<ParameterGroup> scaled_by_width(std::vector<ParameterGroup> groups, const RunConfig& config) {
  if (config.optimizer.scaling == WidthScaling::kNone) return groups;
  std::vector<ParameterGroup> scaled;
  for (const ParameterGroup& group : groups) {
    for (const auto& [factor, names] : names_by_factor(config, group.optimizer)) {
      ParameterGroup part = group;
      part.among = names;
      part.lr_scale *= factor;
      part.weight_decay /= factor;
      scaled.push_back(std::move(part));
    }
    scaled.push_back(group);
  }
  return scaled;
}

}  // namespace athanor::inline layout

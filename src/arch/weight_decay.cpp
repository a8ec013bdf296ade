#include "arch/weight_decay.h"

#include <fmt/core.h>

#include <algorithm>

#include "arch/inventory.h"
#include "base/text.h"

namespace athanor {

std::vector<std::string> find_unmatched_decay_patterns(const RunConfig& config) {
  const auto& patterns = config.optimizer.no_weight_decay;
  if (patterns.empty()) return {};
  const auto inventory = make_inventory(config.model);
  std::vector<std::string> lines;
  for (const auto& pattern : patterns) {
    const bool used =
        std::ranges::any_of(inventory, [&](const ParameterSpec& p) { return matches_wildcard(pattern, p.name); });
    if (used) continue;
    lines.push_back(
        fmt::format("optimizer.no_weight_decay: \"{}\" matches no parameter of this model; names are like {} and {}",
                    pattern, inventory.front().name, inventory.back().name));
  }
  return lines;
}

}  // namespace athanor

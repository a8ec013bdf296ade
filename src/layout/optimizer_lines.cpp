#include "layout/optimizer_lines.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <utility>

#include "arch/inventory.h"
#include "base/text.h"
#include "layout/optimizer_state.h"
#include "layout/width_groups.h"

namespace athanor::inline layout {
namespace {

using TensorsOfRole = std::map<Role, int64_t>;

// What one optimizer updates.
struct Share {
  int64_t tensors = 0, elements = 0;
  std::map<std::pair<double, double>, TensorsOfRole> by_settings = {};  // factor of the rate, weight decay
};

std::string describe_roles(const TensorsOfRole& taken, const TensorsOfRole& all) {
  std::vector<std::string> roles;
  for (const std::string& name : role_names()) {
    const auto found = taken.find(*find_role(name));
    if (found == taken.end()) continue;
    const int64_t of_role = all.at(found->first);
    roles.push_back(found->second == of_role ? name : fmt::format("{} ({} of {})", name, found->second, of_role));
  }
  return join(roles);
}

}  // namespace

std::vector<std::string> describe_optimizers(const RunConfig& config) {
  OptimizerPlan plan = plan_optimizers(config.optimizer);
  if (plan.optimizers.size() == 1 && config.optimizer.groups.empty()) return {};
  plan.groups = scaled_by_width(std::move(plan.groups), config);
  std::map<std::string, Share> shares;
  TensorsOfRole all;
  for (const ParameterSpec& spec : make_inventory(config.model)) {
    const ParameterGroup& group = group_of(plan.groups, spec.name, spec.role);
    Share& share = shares[group.optimizer];
    ++share.tensors, ++all[spec.role], ++share.by_settings[{group.lr_scale, group.weight_decay}][spec.role];
    share.elements += spec.num_elements();
  }
  std::vector<std::string> lines;
  for (const OptimizerDeclaration& optimizer : plan.optimizers) {
    const Share& share = shares[optimizer.name];
    std::string line = fmt::format("{}: {} tensors of {} parameters", optimizer.name, share.tensors,
                                   format_thousands(static_cast<double>(share.elements)));
    for (const auto& [settings, roles] : share.by_settings)
      line += fmt::format("; rate {:.4g}, decay {:.4g}: {}", settings.first * config.optimizer.lr, settings.second,
                          describe_roles(roles, all));
    lines.push_back(line);
  }
  if (std::ranges::any_of(config.train.stages, [](const auto& stage) { return stage.lr > 0; }))
    lines.push_back("training phases with another rate scale all of these");
  return lines;
}

}  // namespace athanor::inline layout

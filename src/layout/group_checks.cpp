#include "layout/group_checks.h"

#include <fmt/core.h>

#include <algorithm>

#include "arch/inventory.h"
#include "base/text.h"
#include "config/families.h"
#include "layout/parameter_groups.h"

namespace athanor::inline layout {
namespace {

using Inventory = std::vector<ParameterSpec>;

void check_pattern(const std::string& key, const std::string& pattern, const Inventory& inventory,
                   std::vector<std::string>& lines) {
  if (std::ranges::any_of(inventory, [&](const ParameterSpec& spec) { return takes_parameter(pattern, spec); })) return;
  if (find_role(pattern)) {
    lines.push_back(fmt::format("{}: this model has no parameter with the role \"{}\"", key, pattern));
    return;
  }
  const std::string hint = did_you_mean(pattern, role_names());
  lines.push_back(fmt::format("{}: \"{}\" matches no parameter of this model{}; names are like {} and {}", key, pattern,
                              hint, inventory.front().name, inventory.back().name));
}

// Names the first parameter that two groups take, for each two groups.
void check_overlaps(const std::vector<OptimizerGroupConfig>& groups, const Inventory& inventory,
                    std::vector<std::string>& lines) {
  const auto takes = [&](const OptimizerGroupConfig& group, const ParameterSpec& spec) {
    return std::ranges::any_of(group.match, [&](const std::string& pattern) { return takes_parameter(pattern, spec); });
  };
  for (size_t i = 0; i < groups.size(); ++i) {
    for (size_t j = i + 1; j < groups.size(); ++j) {
      const auto both = std::ranges::find_if(
          inventory, [&](const ParameterSpec& spec) { return takes(groups[i], spec) && takes(groups[j], spec); });
      if (both != inventory.end())
        lines.push_back(fmt::format("optimizer.groups[{}] and optimizer.groups[{}] both take {}; a parameter is in one",
                                    i, j, both->name));
    }
  }
}

void check_muon(const OptimizerConfig& optimizer, const Inventory& inventory, std::vector<std::string>& lines) {
  const auto groups = parameter_groups(optimizer);
  const auto dims = [](const ParameterSpec& spec) { return spec.shape.size() - (spec.is_expert() ? 1 : 0); };
  const auto vector = std::ranges::find_if(inventory, [&](const ParameterSpec& spec) {
    return dims(spec) < 2 && group_of(groups, spec.name, spec.role).optimizer == "muon";
  });
  if (vector != inventory.end())
    lines.push_back(
        fmt::format("optimizer.groups: muon updates matrices, and {} is a vector of {} elements{}; give it another "
                    "optimizer, such as adamw",
                    vector->name, vector->shape.back(), vector->is_expert() ? " for each expert" : ""));
}

void check_qk_clip(const RunConfig& config, std::vector<std::string>& lines) {
  if (config.optimizer.qk_clip == 0) return;
  if (family_of(config.model).biases != Biases::kNone)
    lines.push_back(
        fmt::format("optimizer.qk_clip ({}): {} has biases of queries and keys, which it does not scale; set it to 0",
                    config.optimizer.qk_clip, config.model.family));
  if (config.model.has_latents())
    lines.push_back(fmt::format(
        "optimizer.qk_clip ({}): in {} all heads share dims of their keys, which no head can scale alone; set it to 0",
        config.optimizer.qk_clip, config.model.family));
  if (family_of(config.model).qk_norm == QkNorm::kNone) return;
  lines.push_back(
      fmt::format("optimizer.qk_clip ({}): {} normalises queries and keys, so that scaling their weights changes no "
                  "logit, and the norms' scales bound the logits; set it to 0",
                  config.optimizer.qk_clip, config.model.family));
}

}  // namespace

std::vector<std::string> find_group_faults(const RunConfig& config) {
  const OptimizerConfig& optimizer = config.optimizer;
  const auto& fresh = config.checkpoint.fresh_groups;
  if (optimizer.no_weight_decay.empty() && optimizer.groups.empty() && optimizer.qk_clip == 0 && fresh.empty())
    return {};
  const Inventory inventory = make_inventory(config.model);
  std::vector<std::string> lines;
  for (const auto& pattern : optimizer.no_weight_decay)
    check_pattern("optimizer.no_weight_decay", pattern, inventory, lines);
  for (size_t i = 0; i < optimizer.groups.size(); ++i) {
    for (const auto& pattern : optimizer.groups[i].match)
      check_pattern(fmt::format("optimizer.groups[{}]", i), pattern, inventory, lines);
  }
  for (const auto& pattern : fresh) check_pattern("checkpoint.fresh_groups", pattern, inventory, lines);
  check_overlaps(optimizer.groups, inventory, lines);
  check_muon(optimizer, inventory, lines);
  check_qk_clip(config, lines);
  return lines;
}

}  // namespace athanor::inline layout

#include "config/optimizer_checks.h"

#include <algorithm>

#include "base/text.h"
#include "config/findings.h"

namespace athanor {
namespace {

// The options that only some optimizers have, and whether they were changed. A value that is the default's is no
// mistake: the file that a run writes has every field.
struct Option {
  std::string key;
  bool is_changed;
  std::vector<std::string> owners;
};

std::vector<Option> options_of(const OptimizerConfig& c) {
  const OptimizerConfig plain;
  return {{"betas", c.betas != plain.betas, {"adamw", "lamb", "sophiag"}},
          {"eps", c.eps != plain.eps, {"adamw", "lamb"}},
          {"momentum", c.momentum != plain.momentum, {"sgd", "muon"}},
          {"nesterov", c.nesterov != plain.nesterov, {"sgd", "muon"}},
          {"rho", c.rho != plain.rho, {"sophiag"}},
          {"hessian_interval", c.hessian_interval != plain.hessian_interval, {"sophiag"}},
          {"newton_schulz_steps", c.newton_schulz_steps != plain.newton_schulz_steps, {"muon"}},
          {"newton_schulz_coefficients", c.newton_schulz_coefficients != plain.newton_schulz_coefficients, {"muon"}},
          {"newton_schulz_dtype", c.newton_schulz_dtype != plain.newton_schulz_dtype, {"muon"}},
          {"muon_scale", c.muon_scale != plain.muon_scale, {"muon"}}};
}

}  // namespace

std::vector<std::string> named_optimizers(const OptimizerConfig& config) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (!name.empty() && std::ranges::find(names, name) == names.end()) names.push_back(name);
  };
  add(config.name);
  if (config.name == "muon") add("adamw");
  for (const OptimizerGroupConfig& group : config.groups) add(group.name);
  return names;
}

std::vector<std::string> find_optimizer_contradictions(const OptimizerConfig& config) {
  Findings found;
  const auto names = named_optimizers(config);
  for (const Option& option : options_of(config)) {
    const bool has_owner = std::ranges::any_of(
        option.owners, [&](const auto& owner) { return std::ranges::find(names, owner) != names.end(); });
    found.require(!option.is_changed || has_owner, "optimizer.{} is an option of {}, and the run has {}; leave it out",
                  option.key, join(option.owners), join(names));
  }
  for (size_t i = 0; i < config.groups.size(); ++i) {
    const OptimizerGroupConfig& group = config.groups[i];
    found.require(!group.match.empty(),
                  "optimizer.groups[{}].match is missing: set it to names of parameters with * and ?, or to roles such "
                  "as \"norm\"",
                  i);
    found.require(!group.name.empty() || group.lr > 0 || group.weight_decay >= 0,
                  "optimizer.groups[{}] changes nothing; set its name, lr or weight_decay", i);
  }
  return found.take();
}

}  // namespace athanor

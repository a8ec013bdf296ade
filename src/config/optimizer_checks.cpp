#include "config/optimizer_checks.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "config/findings.h"

namespace athanor::inline config {
namespace {

// An option that only some optimizers have. A value that is the default's is no mistake: the file that a run writes has
// every field.
struct Option {
  std::string key;
  std::vector<std::string> owners;
  bool (*is_changed)(const OptimizerConfig& config);
  void (*reset)(OptimizerConfig& config);
};

template <auto kField>
Option option(const char* key) {
  Option made{key,
              {},
              [](const OptimizerConfig& c) { return c.*kField != OptimizerConfig{}.*kField; },
              [](OptimizerConfig& c) { c.*kField = OptimizerConfig{}.*kField; }};
  for (const OptimizerRow& row : optimizer_table())
    if (std::ranges::count(row.options, made.key) > 0) made.owners.push_back(row.name);
  return made;
}

std::vector<Option> all_options() {
  using C = OptimizerConfig;
  return {option<&C::betas>("betas"),
          option<&C::eps>("eps"),
          option<&C::momentum>("momentum"),
          option<&C::nesterov>("nesterov"),
          option<&C::rho>("rho"),
          option<&C::hessian_interval>("hessian_interval"),
          option<&C::newton_schulz_steps>("newton_schulz_steps"),
          option<&C::newton_schulz_coefficients>("newton_schulz_coefficients"),
          option<&C::newton_schulz_dtype>("newton_schulz_dtype"),
          option<&C::muon_scale>("muon_scale")};
}

// The changed options that no optimizer of the configuration has.
std::vector<Option> foreign_options(const OptimizerConfig& config) {
  const auto names = named_optimizers(config);
  std::vector<Option> foreign = all_options();
  std::erase_if(foreign, [&](const Option& each) {
    return !each.is_changed(config) || std::ranges::find_first_of(each.owners, names) != each.owners.end();
  });
  return foreign;
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

void drop_options_of_others(OptimizerConfig& config, const std::vector<std::string>& names) {
  OptimizerConfig other = config;
  for (const Option& option : foreign_options(config)) {
    for (const std::string& name : names) {
      other.name = name;
      if (std::ranges::find_first_of(option.owners, named_optimizers(other)) != option.owners.end())
        option.reset(config);
    }
  }
}

// Which parameters have the run's rate and decay, the model decides: optimizer.no_weight_decay may take them from the
// decay, and groups from both. So only what is refused for certain counts.
std::vector<std::string> find_decay_faults(const OptimizerConfig& config, double peak_lr) {
  Findings found;
  const auto check = [&](const std::string& where, const std::string& lr_at, const std::string& decay_at,
                         const std::string& name, double lr, double decay) {
    const bool flips = !optimizer_row(name).decays_in_direction && lr * decay >= 1;
    found.require(!flips,
                  "{}{}lr ({}) · {}weight_decay ({}) is {:.4g}: an update multiplies each weight by 1 minus that, "
                  "which would be 0 or change its sign; lower one of them until the product is below 1",
                  where, lr_at, lr, decay_at, decay, lr * decay);
    return flips;
  };
  const auto takes_all = [](const OptimizerGroupConfig& group) { return std::ranges::count(group.match, "*") > 0; };
  const bool some_have =
      std::ranges::count(config.no_weight_decay, "*") == 0 && std::ranges::none_of(config.groups, takes_all);
  const bool all = some_have && check("", "optimizer.", "optimizer.", config.name, peak_lr, config.weight_decay);
  for (size_t i = 0; i < config.groups.size(); ++i) {
    const OptimizerGroupConfig& group = config.groups[i];
    const bool own_lr = group.lr > 0, own_decay = group.weight_decay >= 0;
    if (all && !own_lr && !own_decay) continue;  // the same numbers
    if (!own_decay && !config.no_weight_decay.empty()) continue;
    const std::string at = fmt::format("optimizer.groups[{}].", i),
                      name = group.name.empty() ? config.name : group.name;
    check(own_lr || own_decay ? "" : fmt::format("optimizer.groups[{}] ({}) has ", i, name), own_lr ? at : "optimizer.",
          own_decay ? at : "optimizer.", name, own_lr ? group.lr * (peak_lr / config.lr) : peak_lr,
          own_decay ? group.weight_decay : config.weight_decay);
  }
  return found.take();
}

std::vector<std::string> find_optimizer_contradictions(const OptimizerConfig& config) {
  Findings found;
  for (const Option& option : foreign_options(config))
    found.require(false, "optimizer.{} is an option of {}, and the run has {}; leave it out", option.key,
                  join(option.owners), join(named_optimizers(config)));
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

}  // namespace athanor::inline config

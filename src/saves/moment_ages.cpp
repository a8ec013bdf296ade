#include "saves/moment_ages.h"

#include "arch/inventory.h"
#include "base/error.h"
#include "base/text.h"

namespace athanor::inline saves {
namespace {

using nlohmann::json;

// A tensor of the optimizers' state that a checkpoint lacks: "exp_avg/NAME", and NAME; "" for a scalar.
struct Missing {
  std::string tensor, parameter;
};

std::vector<Missing> find_missing(const TrainState& state, const CheckpointReader& checkpoint) {
  const OptimizerPlan& plan = state.optimizer.set.plan();
  std::vector<Missing> missing;
  for (const std::string& tensor : plan.tensor_names(state.config.model)) {
    const size_t slash = tensor.find('/');
    if (!checkpoint.manifest().tensors.contains(tensor))
      missing.push_back({tensor, slash == std::string::npos ? "" : tensor.substr(slash + 1)});
  }
  return missing;
}

std::set<std::string> parameters_of(const std::vector<Missing>& missing) {
  std::set<std::string> parameters;
  for (const Missing& each : missing) parameters.insert(each.parameter);
  return parameters;
}

// The words of checkpoint.fresh_groups that take these parameters and no others: roles, and names where a role has
// others as well.
std::vector<std::string> words_for(const std::set<std::string>& parameters, const ModelConfig& model) {
  std::map<Role, bool> whole;
  const auto inventory = make_inventory(model);
  for (const ParameterSpec& spec : inventory) {
    const auto [at, is_new] = whole.try_emplace(spec.role, true);
    at->second = at->second && parameters.contains(spec.name);
  }
  std::vector<std::string> words;
  for (const std::string& name : role_names()) {
    const auto found = whole.find(*find_role(name));
    if (found != whole.end() && found->second) words.push_back(name);
  }
  for (const ParameterSpec& spec : inventory)
    if (!whole.at(spec.role) && parameters.contains(spec.name)) words.push_back(spec.name);
  return words;
}

// ", or for these alone checkpoint.fresh_groups = [...]", if that is shorter than a line.
std::string suggest_groups(const std::set<std::string>& parameters, const ModelConfig& model) {
  constexpr size_t kMost = 15;  // as many as there are roles
  const auto words = words_for(parameters, model);
  if (words.empty() || words.size() > kMost) return "";
  return fmt::format(", or, for these parameters alone, checkpoint.fresh_groups = {}", json(words).dump());
}

std::set<std::string> named_by(const std::vector<std::string>& words, const ModelConfig& model) {
  std::set<std::string> named;
  for (const ParameterSpec& spec : make_inventory(model)) {
    if (std::ranges::any_of(words, [&](const std::string& word) { return takes_parameter(word, spec); }))
      named.insert(spec.name);
  }
  return named;
}

}  // namespace

std::string idle_fresh_groups(const CheckpointConfig& config, const std::string& reason) {
  return config.fresh_groups.empty() ? "" : "checkpoint.fresh_groups has no effect in this start: " + reason;
}

json updates_json(const TrainState& state) {
  json updates = json::object();
  for (const ParameterSpec& spec : make_inventory(state.config.model)) {
    const auto since = state.optimizer.fresh_since.find(spec.name);
    updates[spec.name] = state.position.step - (since == state.optimizer.fresh_since.end() ? 0 : since->second);
  }
  return updates;
}

std::map<std::string, int64_t> read_updates(const ModelConfig& model, const json& updates, int64_t step,
                                            const std::string& where) {
  std::map<std::string, int64_t> fresh_since;
  for (const ParameterSpec& spec : make_inventory(model)) {
    if (updates.is_null()) break;
    const auto found = updates.find(spec.name);
    const bool counted = found != updates.end() && found->is_number_unsigned();
    ATHANOR_CHECK_CHECKPOINT(counted && *found <= step,
                             "{}: the updates of {} are {}, expected a whole number from 0 to {} (its step); take "
                             "another checkpoint",
                             where, spec.name, found == updates.end() ? "missing" : found->dump(), step);
    const auto since = step - found->get<int64_t>();
    if (since > 0) fresh_since[spec.name] = since;
  }
  return fresh_since;
}

void note_fresh_moments(TrainState& state) {
  std::map<std::string, int64_t> fresh_since;
  for (const ParameterSpec& spec : make_inventory(state.config.model)) fresh_since[spec.name] = state.position.step;
  state.optimizer.set_fresh_since(std::move(fresh_since));
}

FreshState choose_fresh_state(const TrainState& state, const CheckpointReader& checkpoint, Chosen chosen, int64_t step,
                              std::string& note) {
  const CheckpointConfig& config = state.config.checkpoint;
  std::vector<Missing> missing = find_missing(state, checkpoint);
  const std::string where = checkpoint.folder().string();
  if (config.fresh_moments && (chosen == Chosen::kByName || !missing.empty())) {
    note = fmt::format("fresh moments from step {} on, as checkpoint.fresh_moments asks: those of {} are {}", step,
                       where, missing.empty() ? "not read" : "not all there");
    return {.all = true};
  }
  const std::set<std::string> lacking = parameters_of(missing);
  FreshState fresh{.parameters = named_by(config.fresh_groups, state.config.model)};
  if (chosen == Chosen::kAsNewest)
    std::erase_if(fresh.parameters, [&](const std::string& each) { return !lacking.contains(each); });
  if (fresh.parameters.empty()) {
    note = idle_fresh_groups(config, fmt::format("the run continues from its newest checkpoint, {}, whose moments are "
                                                 "kept",
                                                 where));
  } else {
    note =
        fmt::format("fresh moments from step {} on, as checkpoint.fresh_groups asks: those of {} parameters ({})", step,
                    fresh.parameters.size(), join_first({fresh.parameters.begin(), fresh.parameters.end()}, 4));
  }
  std::erase_if(missing, [&](const Missing& each) { return fresh.has(each.parameter); });
  if (missing.empty()) return fresh;
  std::vector<std::string> tensors;
  for (const Missing& each : missing) tensors.push_back(each.tensor);
  ATHANOR_CHECK_CHECKPOINT(step == 0,  // imported: there are none yet
                           "{} is of step {} and lacks {} of the optimizer's moments ({}); to continue from its "
                           "weights with zero moments, set checkpoint.fresh_moments = true{}",
                           where, step, tensors.size(), join_first(tensors, 4),
                           suggest_groups(lacking, state.config.model));
  note = idle_fresh_groups(config, "all moments begin at zero");
  return {.all = true};
}

}  // namespace athanor::inline saves

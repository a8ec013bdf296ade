#include "train/moment_ages.h"

#include "arch/inventory.h"
#include "base/error.h"
#include "base/text.h"

namespace athanor {
namespace {

using nlohmann::json;

}  // namespace

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

Moments choose_moments(const TrainState& state, const CheckpointReader& checkpoint, Chosen chosen, int64_t step,
                       std::string& note) {
  const auto missing = missing_state(state, checkpoint);
  if (state.config.checkpoint.fresh_moments && (chosen == Chosen::kByName || !missing.empty())) {
    note = fmt::format("fresh moments from step {} on, as checkpoint.fresh_moments asks: those of {} are {}", step,
                       checkpoint.folder().string(), missing.empty() ? "not read" : "not all there");
    return Moments::kFresh;
  }
  if (missing.empty()) return Moments::kLoad;
  ATHANOR_CHECK_CHECKPOINT(step == 0,  // imported: there are none yet
                           "{} is of step {} and lacks {} of the optimizer's moments ({}); to continue from its "
                           "weights with zero moments, set checkpoint.fresh_moments = true",
                           checkpoint.folder().string(), step, missing.size(), join_first(missing, 4));
  return Moments::kFresh;
}

}  // namespace athanor

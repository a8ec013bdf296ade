// Loads full checkpoints. What the manifest alone decides is decided and checked first, then the tensors are loaded and
// their hashes compared, and only then the rest of the state is set: a checkpoint that turns out to be damaged leaves
// nothing but tensors, which the next one overwrites.

#include <exception>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/model_identity.h"
#include "saves/checkpointing.h"
#include "saves/progress.h"
#include "saves/router_state.h"
#include "train/state_pieces.h"

namespace athanor::inline saves {
namespace {

using nlohmann::json;

// What a checkpoint sets in addition to tensors.
struct CheckedNumbers {
  RunPosition position;
  std::string earlier_config;  // "" if it is not stored
  FreshState fresh;
  std::map<std::string, int64_t> fresh_since;  // unless the moments are fresh
  RouterRows previous_share, router_bias;      // empty: stay as they are
  std::vector<std::string> notes;              // for the log, if the checkpoint is taken
};

RouterRows read_router_bias(const TrainState& state, const json& stored, const std::string& where) {
  const ModelConfig& model = state.config.model;
  RouterRows bias = read_router_rows(stored, kRouterBias, model, where);
  ATHANOR_CHECK(bias.empty() || !any_nonzero(bias) || state.config.checkpoint.model_interval == 0 ||
                    !family_of(model).names.router_bias.empty(),
                "{} has a router bias, which the class of family {} in transformers has not: no model-only checkpoint "
                "can be written; set checkpoint.model_interval to 0",
                where, model.family);
  return bias;
}

CheckedNumbers check_numbers(const TrainState& state, const CheckpointReader& checkpoint, Chosen chosen) {
  const std::string where = checkpoint.folder().string();
  const json& stored = checkpoint.state();
  CheckedNumbers checked;
  // Moments have the shapes of their time: a vocabulary grows from a model alone.
  auto allowed = state.config.checkpoint.allow_model_change;
  std::erase(allowed, "vocab_size");
  for (const auto& each : check_same_model(checkpoint.manifest().model, state.config.model, where, allowed))
    checked.notes.push_back(fmt::format("{}: {}, as checkpoint.allow_model_change permits", where, each));
  checked.position = read_progress(state, stored, checkpoint.folder());
  checked.position.spikes = {};
  if (stored.contains(kSpikes)) checked.position.spikes = Spikes::from_json(stored[kSpikes], where);
  std::string note;
  checked.fresh = choose_fresh_state(state, checkpoint, chosen, checked.position.step, note);
  if (!note.empty()) checked.notes.push_back(note);
  if (!checked.fresh.all)
    checked.fresh_since =
        read_updates(state.config.model, stored.value(kOptimizerUpdates, json()), checked.position.step, where);
  for (const std::string& each : checked.fresh.parameters) checked.fresh_since[each] = checked.position.step;
  checked.previous_share = read_router_rows(stored, kRouterPreviousShare, state.config.model, where);
  checked.router_bias = read_router_bias(state, stored, where);
  if (const auto config = stored.find("config"); config != stored.end() && config->is_string())
    checked.earlier_config = config->get<std::string>();
  return checked;
}

// Collective.
void take(TrainState& state, CheckedNumbers checked) {
  for (const auto& note : checked.notes) log::info("{}", note);
  share_loaded_state(state, checked.fresh);
  state.position = std::move(checked.position);
  state.earlier_config = std::move(checked.earlier_config);
  if (checked.fresh.all) {
    note_fresh_moments(state);
  } else {
    state.optimizer.set_fresh_since(std::move(checked.fresh_since));
  }
  if (!checked.previous_share.empty()) state.model.set_previous_share(tensor_of(checked.previous_share));
  if (!checked.router_bias.empty()) state.model.set_router_bias(tensor_of(checked.router_bias));
}

// Loads what is needed, with other copies of files that are damaged as long as there are any. Collective.
std::optional<NotFinite> load_what_is_in_order(const CheckpointReader& checkpoint,
                                               const std::vector<TargetView>& targets, const Team& team,
                                               FileSupply& supply) {
  for (FileDamage damage;;) {
    std::exception_ptr failure;
    try {
      return load_needed(checkpoint, targets, team, damage);
    } catch (const CommError&) {
      throw;
    } catch (const Error&) {
      failure = std::current_exception();
    }
    if (!supply.replace(damage)) std::rethrow_exception(failure);
    checkpoint.close_files();
  }
}

}  // namespace

void load_checkpoint(TrainState& state, const CheckpointReader& checkpoint, Chosen chosen) {
  CheckedNumbers checked = check_numbers(state, checkpoint, chosen);
  const auto first = load_verified(checkpoint, state_targets(state, checked.fresh), team_of(state.model.mesh));
  ATHANOR_CHECK_CHECKPOINT(!first, "{} is not finite although its hashes are right: {}; take an older checkpoint",
                           checkpoint.folder().string(), first->text());
  take(state, std::move(checked));
}

std::optional<LoadedNewest> load_newest_checkpoint(TrainState& state, const std::filesystem::path& folder) {
  CheckedNumbers checked;
  const auto choose = [&](const CheckpointReader& checkpoint) {
    checked = check_numbers(state, checkpoint, Chosen::kAsNewest);
    return state_targets(state, checked.fresh);
  };
  auto loaded = load_newest(folder, choose, team_of(state.model.mesh));
  if (loaded) take(state, std::move(checked));
  return loaded;
}

bool load_from_nodes(TrainState& state, const CheckpointReader& checkpoint, FileSupply& supply) {
  const Team team = team_of(state.model.mesh);
  CheckedNumbers checked;
  std::vector<TargetView> targets;
  team.on_all([&] {
    checked = check_numbers(state, checkpoint, Chosen::kAsNewest);
    targets = state_targets(state, checked.fresh);
    checkpoint.check_fits(targets);
  });
  const auto load = [&] {
    std::set<std::string> files;
    team.on_all([&] {
      for (const auto& use : checkpoint.plan(targets).uses)
        files.insert(checkpoint.manifest().pieces[use.piece].file_name());
    });
    supply.fetch(files);
    const auto first = load_what_is_in_order(checkpoint, targets, team, supply);
    ATHANOR_CHECK_CHECKPOINT(!first, "{} is not finite although its hashes are right: {}", checkpoint.folder().string(),
                             first->text());
  };
  if (!passes(load, team)) {
    zero_optimizer_state(state);  // what follows may begin with fresh moments, and fills all weights
    return false;
  }
  take(state, std::move(checked));
  return true;
}

}  // namespace athanor::inline saves

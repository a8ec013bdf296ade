#include "train/start.h"

#include <algorithm>
#include <iterator>

#include "arch/inventory.h"
#include "arch/weight_decay.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "checkpoint/hf_import.h"
#include "checkpoint/hf_tokenizer.h"
#include "checkpoint/rotation.h"
#include "config/checks.h"
#include "model/initialize.h"
#include "train/checkpointing.h"
#include "train/kept_warmup.h"
#include "train/preflight.h"
#include "train/rank_share.h"
#include "train/run_folder.h"
#include "train/run_place.h"
#include "train/state_pieces.h"

namespace athanor {
namespace fs = std::filesystem;
namespace {

void load_weights(TrainState& state, const HfFolder& folder) {
  load_master(state,
              [&](const std::string& name, int64_t first, std::span<float> out) { folder.read(name, first, out); });
}

// checkpoint.resume names a folder: a full checkpoint, or a model-only one whose moments start fresh.
void resume_from_path(TrainState& state, const fs::path& path) {
  if (fs::exists(path / kManifestName)) {
    load_checkpoint(state, open_verified(path, team_of(state.mesh)));
    log::info("resumed from {} at step {}", path.string(), state.step);
    return;
  }
  ATHANOR_CHECK(
      fs::exists(path / "config.json"),
      "checkpoint.resume: {} is neither a checkpoint (manifest.json) nor a model folder (config.json); expected "
      "\"auto\", \"never\" or one of those",
      path.string());
  load_weights(state, HfFolder::open(path));
  load_progress(state, path);
  log::info("restarted from the model in {} at step {}, with fresh moments", path.string(), state.step);
}

// Answers false if there is nothing to resume. A path is where a run begins; once the run has checkpoints of its own it
// goes on from those, so that the same command may be repeated until it is done.
bool resume(TrainState& state, const RunFolder& folder) {
  const std::string& how = state.config.checkpoint.resume;
  const bool from_path = how != "auto" && how != "never";
  if (const auto newest = open_newest_verified(folder.checkpoints(), team_of(state.mesh))) {
    load_checkpoint(state, *newest);
    log::info("resumed from {} at step {}", newest->folder().string(), state.step);
    if (from_path)
      log::warn(
          "checkpoint.resume ({}) was passed over: this run has gone on since; to branch off there, name another "
          "train.run_dir",
          how);
    return true;
  }
  if (from_path) {
    resume_from_path(state, how);
    return true;
  }
  ATHANOR_CHECK_CHECKPOINT(
      list_checkpoints(folder.checkpoints()).empty(),
      "every checkpoint in {} is damaged; move them away to start anew, or set checkpoint.resume to a "
      "folder in {}",
      folder.checkpoints().string(), folder.models().string());
  return false;
}

bool begins_anew(const RunConfig& config) {
  const std::string& how = config.checkpoint.resume;
  return (how == "auto" || how == "never") && list_checkpoints(RunFolder{config.train.run_dir}.checkpoints()).empty();
}

// A model goes on in the tokens that it knows. The same tokenizer may be stored in other bytes, so this is no error.
void warn_of_another_tokenizer(const TrainState& state, const fs::path& from) {
  const fs::path tokenizer = find_tokenizer_file(from);
  if (tokenizer.empty() || hash_file(tokenizer) == state.data.tokenizer_hash) return;
  log::warn(
      "the data were not prepared with {} but with another file: unless both give the same ids, the model begins in "
      "tokens it does not know; prepare the documents with --tokenizer {}",
      tokenizer.string(), tokenizer.string());
}

void start_fresh(TrainState& state) {
  if (state.config.model.from.empty()) {
    initialize_parameters(state.config.model, static_cast<uint64_t>(state.config.train.seed), state.parameters);
  } else {
    load_weights(state, HfFolder::open(state.config.model.from));
    log::info("weights from {}", state.config.model.from);
    warn_of_another_tokenizer(state, state.config.model.from);
  }
}

// The fields of a model that comes from a folder; `from` stays, so that the run folder says where it began.
void resolve_model(RunConfig& config) {
  if (config.model.from.empty()) return;
  const std::string from = config.model.from;
  config.model = HfFolder::open(from).model();
  config.model.from = from;
  const auto problems = find_contradictions(config.model);
  ATHANOR_CHECK_AS(CheckpointError, problems.empty(), "{}: {}", from, join(problems, "; "));
}

// The folder is one for all ranks: the first makes it and keeps the log.
void open_folder(const StartedRun& run, const RunConfig& config) {
  const auto& tokenizer = run.stages.front().train.sources().front().dataset.tokenizer_file();
  team_of(*run.mesh).on_first([&] { open_run_folder(config, tokenizer); });
}

void say_what_starts(const TrainState& state) {
  const RunConfig& config = state.config;
  log::info("{}: {} parameters ({} active for a token), {} threads{}", config.train.run_dir,
            format_thousands(static_cast<double>(count_parameters(config.model))),
            format_thousands(static_cast<double>(count_active_parameters(config.model))), at::get_num_threads(),
            state.mesh.world().size() > 1 ? " on each rank" : "");
  if (state.mesh.world().size() > 1) log::info("{}", describe_layout(state));
  if (state.layout.microbatches() < state.layout.pipeline()) {
    log::warn(
        "{} microbatches do not fill {} pipeline ranks, which wait {:.0f}% of the time: raise "
        "train.global_batch_size, or lower train.micro_batch_size or parallelism.pipeline_parallel_degree",
        state.layout.microbatches(), state.layout.pipeline(), 100 * check_schedule(state.pipeline.schedule()).bubble);
  }
}

}  // namespace

void refuse_misfits(RunConfig config, int world_size) {
  resolve_model(config);
  auto faults = find_layout_faults(config, world_size);
  std::ranges::move(find_unmatched_decay_patterns(config), std::back_inserter(faults));
  ATHANOR_CHECK(faults.empty(), "{}", join(faults, "\n"));
}

comm::WorldOptions world_options(const RunConfig& config) {
  comm::WorldOptions options;
  options.timeout = std::chrono::milliseconds(std::llround(config.parallelism.collective_timeout_s * 1000));
  options.check = config.parallelism.check_collectives;
  options.ranks_per_node = static_cast<int>(config.topology.ranks_per_node);
  options.nodes_per_supernode = static_cast<int>(config.topology.nodes_per_supernode);
  return options;
}

StartedRun start_run(RunConfig config, comm::World& world) {
  at::set_num_threads(threads_of_rank(world, config.train.num_threads));
  thread_count("data.num_threads", config.data.num_threads);
  resolve_model(config);
  StartedRun run;
  run.mesh = std::make_unique<Mesh>(Layout(config, world.size()), world);
  if (!run.mesh->is_first()) log::set_level(log::Level::kError);  // what all would say is said once
  team_of(*run.mesh).on_first([&] { refuse_misplaced_run(config); });
  keep_warmup(config, team_of(*run.mesh));
  run.stages = open_run_data(config, team_of(*run.mesh), [&](int64_t num_bytes) { world.note_work(num_bytes); });
  const DataIdentity identity = data_identity(run.stages);
  for (const auto& data : run.stages) refuse_unbalanceable(data.stage.config);
  for (const auto& data : run.stages) check_memory(data.stage.config, world, Layout(data.stage.config, world.size()));
  // What is known to fail should leave no run folder behind.
  if (begins_anew(config)) plan_supply(run.stages, config, {}, 0).refuse_shortages();
  open_folder(run, config);

  run.state = std::make_unique<TrainState>(config, identity, *run.mesh);
  const bool resumed = resume(*run.state, RunFolder{config.train.run_dir});
  if (!resumed) start_fresh(*run.state);
  refuse_zero_routers(config, run.state->parameters);
  run.from_scratch = !resumed && config.model.from.empty();
  say_what_starts(*run.state);
  const Supply supply = plan_supply(run.stages, config, run.state->ledger, run.state->step);
  for (const auto& line : supply.lines) log::info("{}", line);
  supply.refuse_shortages();
  return run;
}

}  // namespace athanor

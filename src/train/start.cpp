#include "train/start.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <string>

#include "arch/inventory.h"
#include "base/build_info.h"
#include "base/fault_announcement.h"
#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "checkpoint/model_identity.h"
#include "comm/short_texts.h"
#include "config/checks.h"
#include "config/toml_reader.h"
#include "config/untrainable.h"
#include "layout/group_checks.h"
#include "layout/optimizer_lines.h"
#include "ops/device_choice.h"
#include "train/checkpoint_memory.h"
#include "train/fill_state.h"
#include "train/kept_checkpoints.h"
#include "train/kept_defaults.h"
#include "train/local_start.h"
#include "train/lr_jump.h"
#include "train/matmul_choice.h"
#include "train/preflight.h"
#include "train/rank_devices.h"
#include "train/rank_share.h"
#include "train/rehearsals.h"
#include "train/run_folder.h"
#include "train/run_history.h"
#include "train/run_place.h"
#include "train/same_settings.h"
#include "train/start_facts.h"
#include "train/state_pieces.h"
#include "train/validation_interval.h"

namespace athanor {
namespace fs = std::filesystem;
namespace {

// Gives all ranks what the first rank has found in the folder.
Beginning agree_on_beginning(const RunConfig& config, const Team& team) {
  return Beginning::from_text(team.from_first([&] { return plan_beginning(config).to_text(); }));
}

// Writes the first lines of an attempt into the run's history.
void tell_history(const TrainState& state, const Beginning& begin, const FilledState& filled,
                  const OpenedFolder& opened, const MatmulChoice& matmul) {
  const fs::path& from = filled.from;
  const comm::World& world = state.model.mesh.world();
  nlohmann::ordered_json more = {{"host", world.host()}, {"process", ::getpid()}, {"ranks", world.size()}};
  if (!from.empty()) {
    more["from"] = from.string();
    const bool reset = !state.optimizer.fresh_since.empty() &&
                       std::ranges::all_of(state.optimizer.fresh_since, [&](const auto& parameter) {
                         return parameter.second == state.position.step;
                       });
    const bool is_full = filled.saved_step || fs::exists(from / kManifestName);
    more["moments"] = is_full && !reset ? "kept" : "fresh";
  }
  const BuildInfo& build = build_info();
  more["athanor"] = {{"version", build.version}, {"commit", build.commit}};
  more["libtorch"] = build.libtorch;
  if (!world.network().empty()) more["mpi"] = world.network();
  more["cpu"] = model_of_cpu();
  more["branch"] = begin.branch;
  more["matmul"] = nlohmann::ordered_json::parse(text_of(matmul.paths));
  if (const at::Device device = state.model.device(); !device.is_cpu()) {
    const auto facts = ops::facts_of(device);
    more["device"] = {{"kind", device.str()}, {"name", facts.name}, {"memory_bytes", facts.total_bytes}};
  }
  if (!begin.asked.empty()) more["asked"] = begin.asked;
  if (!opened.abandoned.empty()) more["abandoned"] = opened.abandoned;
  if (!opened.changes.empty()) more["changes"] = opened.changes;
  const char* event = from.empty() ? "start" : opened.abandoned.empty() ? "resume" : "went_back";
  EventLog history(RunFolder{state.config.train.run_dir}.events(), begin.attempt);
  if (filled.not_finite) {
    const NotFinite& first = filled.not_finite->first;
    history.add(
        "not_finite", state.position.step,
        {{"path", opened.not_finite}, {"tensor", first.tensor}, {"element", first.index}, {"value", first.value}});
  }
  history.add(event, state.position.step, more);
}

fs::path tokenizer_of(const RunData& data) {
  return data.stages.front().train.sources().front().dataset.tokenizer_file();
}

// All ranks have one folder, which the first rank writes.
void open_folder(const StartedRun& run, const Beginning& begin, const FilledState& filled, const MatmulChoice& matmul) {
  const TrainState& state = *run.state;
  const fs::path tokenizer = tokenizer_of(run.data);
  team_of(*run.mesh).on_first([&] {
    const auto opened = open_run_folder({state.run_config, begin, state.position.step, tokenizer,
                                         state.model.dispatch_record, matmul.record, filled.not_finite});
    tell_history(state, begin, filled, opened, matmul);
    if (filled.not_finite)
      log::warn(
          "put aside a checkpoint that is not finite: it is now {} and will not be loaded or deleted; remove it "
          "if it is no longer needed",
          opened.not_finite);
    for (const auto& each : opened.abandoned)
      log::warn(
          "went back to step {}: {} belongs to the earlier branch and stays there; remove it if it is no longer needed",
          state.position.step, each);
    for (const auto& each : opened.changes) log::info("{}", each);
  });
}

// Nothing if the run begins, or if it is not known with which schedule it came here.
std::optional<LrJump> look_for_lr_jump(const TrainState& state) {
  const int64_t step = state.position.step;
  if (step == 0 || step >= state.run_config.train.steps || state.earlier_config.empty()) return std::nullopt;
  try {
    return find_lr_jump(parse_run_config(state.earlier_config, "the earlier configuration"), state.run_config, step,
                        state.position.tokens_seen);
  } catch (const Error& error) {
    log::info("whether the learning rate jumps is not known: {}", error.what());
    return std::nullopt;
  }
}

// On the first rank.
void tell_lr_jump(const LrJump& jump, const TrainState& state, int64_t attempt) {
  const int64_t step = state.position.step;
  log::warn("step {}: {}", step + 1, jump.text);
  EventLog(RunFolder{state.config.train.run_dir}.events(), attempt)
      .add("lr_jump", step, {{"before", jump.before}, {"now", jump.now}, {"text", jump.text}});
}

// Ends long parts of a start here if a signal has come. Collective.
void stop_if_asked(comm::World& world, const SignalGuard& signals) {
  const Tensor number = at::full({1}, signals.stop_signal().value_or(0), at::kLong);
  world.all().all_reduce(number, comm::Reduction::kMax).wait();
  if (number.item<int64_t>() != 0) throw StoppedAtStart{static_cast<int>(number.item<int64_t>())};
}

// Collective. Comes before the checks that read data and need memory: what they find may be due to a host.
void say_where_it_runs(comm::World& world) {
  const std::vector<std::string> cpus = comm::all_gather_texts(world.all(), cpu_of_host());
  for (const auto& line : start_facts(world.hosts(), world.network(), cpus[0])) log::info("{}", line);
  if (const std::string others = describe_other_cpus(cpus, world.hosts()); !others.empty())
    log::warn_on_all("{}", others);
}

// "auto" took the CPU. A GPU that is there and could be used deserves a warning.
void say_why_cpu() {
  const std::string unused = ops::why_not_accelerated();
  if (!unused.empty()) return log::warn_on_all("this run computes on the CPU: {}", unused);
  log::info("device: CPU ({})", ops::why_cpu());
}

// Chooses the device, the groups between the ranks' devices, and the number type. Collective.
at::Device settle_device(RunConfig& config, Mesh& mesh) {
  const at::Device device = agree_on_devices(config, mesh.world());
  if (device.is_cpu()) {
    if (config.train.device == "auto") say_why_cpu();
    return device;
  }
  if (mesh.world().size() > 1) mesh.use(device, config.parallelism.device_sums);
  const auto [name, id, free_bytes, total_bytes] = ops::facts_of(device);
  log::info("device: {}{}{}{}", mesh.world().size() > 1 ? "one for each rank, here " : "", device.str(),
            name.empty() ? "" : " (" + name + ")",
            free_bytes < 0 ? ""
                           : fmt::format(", {} of {} free", format_bytes(static_cast<double>(free_bytes)),
                                         format_bytes(static_cast<double>(total_bytes))));
  if (config.train.dtype_was_auto) config.train.dtype = "bfloat16";
  return device;
}

// Collective.
void say_threads(comm::World& world, const ThreadShare& own) {
  const auto threads = gather_threads(world, own.threads);
  const int64_t usual = usual_threads(threads);
  const std::string fewer = describe_fewer_threads(threads, world.hosts());
  log::info("{}", describe_threads(own, world.size() > 1 && fewer.empty()));
  if (fewer.empty()) return;
  log::warn_on_all("{}", fewer);
  if (own.threads < usual && world.rank() > 0)
    log::warn("this rank computes with {} of the usual {} threads ({}): each step waits for it", own.threads, usual,
              own.why);
}

void say_what_starts(const TrainState& state, const ThreadShare& threads) {
  const RunConfig& config = state.config;
  comm::World& world = state.model.mesh.world();
  log::info("{}: {} parameters ({} active for a token)", config.train.run_dir,
            format_thousands(static_cast<double>(count_parameters(config.model))),
            format_thousands(static_cast<double>(count_active_parameters(config.model))));
  for (const std::string& line : describe_optimizers(state.run_config)) log::info("{}", line);
  say_threads(world, threads);
  if (world.size() > 1) log::info("{}", describe_layout(state));
  if (state.model.mesh.layout().microbatches() < state.model.mesh.layout().pipeline()) {
    log::warn_on_all(
        "{} microbatches do not fill {} pipeline ranks, which wait {:.0f}% of the time: raise "
        "train.global_batch_size, or lower train.micro_batch_size or parallelism.pipeline_parallel_degree",
        state.model.mesh.layout().microbatches(), state.model.mesh.layout().pipeline(),
        100 * check_schedule(state.model.pipeline.schedule()).bubble);
  }
}

}  // namespace

void require_layout_fits(RunConfig config, int world_size) {
  resolve_model_from(config);
  auto faults = find_layout_faults(config, world_size);
  std::ranges::move(find_group_faults(config), std::back_inserter(faults));
  std::ranges::move(find_scaling_contradictions(config), std::back_inserter(faults));
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

StartedRun start_run(RunConfig config, comm::World& world, RunContext& context, const SignalGuard& signals,
                     RunEvaluation* evaluation, const DataLedger* data_from) {
  require_same_settings(config, world);
  const auto shown_rank = log::shown_rank(world.size());
  const ThreadShare threads = threads_of_rank(world, config.train.num_threads);
  at::set_num_threads(threads.threads);
  thread_count("data.num_threads", config.data.num_threads);
  const auto beside_from = resolve_model_from(config);
  check_faults(config, world.size());
  StartedRun run;
  run.threads = threads;
  run.mesh = std::make_unique<Mesh>(Layout(config, world.size()), world);
  if (!run.mesh->is_first()) log::speak_as_rank(world.rank(), world.host(), shown_rank == world.rank());
  for (const auto& line : beside_from) log::warn_on_all("{}", line);
  const Team team = team_of(*run.mesh);
  team.on_first([&] {
    refuse_misplaced_run(config);
    run.lock = std::make_unique<FolderLock>(config.train.run_dir);
  });
  Beginning begin = agree_on_beginning(config, team);
  const LocalStart local = look_for_local(config, begin, *run.mesh);
  if (!local.choice) begin.require_allowed();
  say_where_it_runs(world);
  const at::Device device = settle_device(config, *run.mesh);
  keep_warmup(config, team);
  keep_dtype(config, team, device.is_cpu() ? "this CPU" : "the device");
  run.data = open_run_data(config, team);
  settle_validation_interval(config, run.data.stages, team);
  const auto& stages = run.data.stages;
  for (const auto& data : stages) refuse_unbalanceable(data.stage.config);
  // Before what takes seconds, so that a model that cannot fit is refused at once.
  for (const auto& data : stages)
    check_memory(data.stage.config, world, Layout(data.stage.config, world.size()), device);
  const MatmulChoice matmul = device.is_cpu() ? settle_matmul_paths(stages.front().stage.config, begin, team)
                                              : MatmulChoice{ops::matmul_paths(), "", ""};
  stop_if_asked(world, signals);
  const DataIdentity identity = data_identity(stages);
  if (evaluation && config.eval.interval > 0) evaluation->prepare(config, tokenizer_of(run.data), identity, team);
  check_checkpoint_memory(stages.front().stage.config, world, local, device);
  // Errors that can be found before the state is filled are found here.
  if (begin.from == Beginning::From::kNothing) plan_supply(stages, config, {}).refuse_shortages();

  run.state = std::make_unique<TrainState>(config, identity, *run.mesh, TrainStateOptions{.device = device});
  const FilledState filled = fill_state(*run.state, begin, local);
  if (data_from) run.state->position.ledger = *data_from;
  stop_if_asked(world, signals);
  refuse_zero_routers(config, run.state->model.parameters);
  run.from_scratch = filled.random;
  run.saved_step = filled.saved_step.value_or(run.state->position.step);
  const Supply supply = plan_supply(stages, config, run.state->position);
  supply.refuse_shortages();
  refuse_other_ramp(stages, run.state->position);
  const auto lr_jump = look_for_lr_jump(*run.state);

  // Every check has passed: from here on the folder changes.
  announce_armed_faults();
  run.attempt = context.attempt = begin.attempt;
  context.run_dir = config.train.run_dir;
  context.phases.board.begin_attempt(begin.attempt);
  open_folder(run, begin, filled, matmul);
  if (lr_jump && run.mesh->is_first()) tell_lr_jump(*lr_jump, *run.state, begin.attempt);
  const bool moves = local.found && (!local.place || local.place->root() != local.found->root());
  run.old_local = local.left;
  if (moves && local.nodes.is_leader(world.rank())) run.old_local.push_back(*local.found);
  if (local.place) {
    run.local = LocalPlace{local.nodes, *local.place, begin.attempt};
    // Until there is a checkpoint in a new place, or on other nodes, the record is that of the old ones.
    if (!local.found) team.on_first([&] { record_local(*run.local, world); });
  }
  context.rank_log.open(RunFolder{config.train.run_dir}.rank_log(world.rank(), world.host()),
                        [&context] { return context.step.load(); });
  say_what_starts(*run.state, run.threads);
  team.on_first([&] { report_kept_checkpoints(run.state->run_config, run.mesh->layout(), run.state->position.step); });
  if (!matmul.line.empty()) log::info("{}", matmul.line);
  std::set<std::string> told;  // training phases often have the same
  for (const auto& data : stages)
    for (const auto& line : find_untrainable(data.stage.config))
      if (told.insert(line).second) log::warn_on_all("{}", line);
  for (const auto& line : supply.lines) log::info("{}", line);
  for (const auto& line : supply.short_by_skips) log::warn_on_all("{}", line);
  return run;
}

}  // namespace athanor

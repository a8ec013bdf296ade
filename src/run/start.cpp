#include "run/start.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <string>

#include "base/build_info.h"
#include "base/fault_announcement.h"
#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "checkpoint/model_identity.h"
#include "config/checks.h"
#include "config/precision.h"
#include "config/toml_reader.h"
#include "config/untrainable.h"
#include "layout/group_checks.h"
#include "memory/preflight.h"
#include "memory/rank_share.h"
#include "ops/device_choice.h"
#include "ops/device_traits.h"
#include "record/run_folder.h"
#include "record/run_history.h"
#include "run/checkpoint_memory.h"
#include "run/kept_defaults.h"
#include "run/lr_jump.h"
#include "run/matmul_choice.h"
#include "run/open_folder.h"
#include "run/rank_devices.h"
#include "run/refused_places.h"
#include "run/same_settings.h"
#include "run/start_lines.h"
#include "run/validation.h"
#include "saves/fill_state.h"
#include "saves/kept_checkpoints.h"
#include "saves/local_start.h"
#include "train/state_pieces.h"
#include "watch/rehearsals.h"

namespace athanor::inline run {
namespace fs = std::filesystem;
namespace {

// Gives all ranks what the first rank has found in the folder.
ResumePoint agree_on_resume_point(const RunConfig& config, const Team& team) {
  return ResumePoint::from_text(team.from_first([&] { return plan_resume_point(config).to_text(); }));
}

// Writes the first lines of an attempt into the run's history.
void tell_history(const TrainState& state, const ResumePoint& begin, const FilledState& filled,
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
  const at::Device device = state.model.device();
  if (const auto facts = ops::facts_of(device))
    more["device"] = {{"kind", device.str()}, {"name", facts->name}, {"memory_bytes", facts->total_bytes}};
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
void open_folder(const StartedRun& run, const ResumePoint& begin, const FilledState& filled,
                 const MatmulChoice& matmul) {
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

// "auto" took the CPU. A GPU that is there and could be used deserves a warning.
void say_why_cpu() {
  const std::string unused = ops::why_not_accelerated();
  if (!unused.empty()) return log::warn_on_all("this run computes on the CPU: {}", unused);
  log::info("device: CPU ({})", ops::why_cpu());
}

// Returns "cuda:0 (NVIDIA H200), 138.2GiB of 139.8GiB free", as far as it is known.
std::string describe(at::Device device, const ops::DeviceFacts& facts) {
  const auto bytes = [](int64_t count) { return format_bytes(static_cast<double>(count)); };
  return device.str() + (facts.name.empty() ? "" : fmt::format(" ({})", facts.name)) +
         (facts.free_bytes < 0 ? ""
                               : fmt::format(", {} of {} free", bytes(facts.free_bytes), bytes(facts.total_bytes)));
}

// Chooses the device, the groups between the ranks' devices, and the number type. Collective.
at::Device settle_device(RunConfig& config, Mesh& mesh) {
  const at::Device device = agree_on_devices(config, mesh.world());
  mesh.use(device, config.parallelism.device_sums);
  if (const auto facts = ops::facts_of(device))
    log::info("device: {}{}", mesh.world().size() > 1 ? "one for each rank, here " : "", describe(device, *facts));
  else if (config.train.device == DeviceKind::kAuto)
    say_why_cpu();
  choose_type(config.train, ops::traits_of(device).usual_type);
  return device;
}

// The parts of a start, in the order in which start_run calls them. Each is collective.
class Start {
 public:
  Start(RunConfig config, comm::World& world, RunContext& context, const SignalGuard& signals)
      : config_(std::move(config)), world_(world), context_(context), signals_(signals) {}

  // Refuses settings that ranks do not share, or that do not fit their number.
  void agree_on_settings() {
    require_same_settings(config_, world_);
    const auto shown_rank = log::shown_rank(world_.size());
    run_.threads = threads_of_rank(world_, config_.train.num_threads);
    at::set_num_threads(run_.threads.threads);
    thread_count("data.num_threads", config_.data.num_threads);
    const auto beside_from = resolve_model_from(config_);
    check_faults(config_, world_.size());
    run_.mesh = std::make_unique<Mesh>(Layout(config_, world_.size()), world_);
    if (!run_.mesh->is_first()) log::speak_as_rank(world_.rank(), world_.host(), shown_rank == world_.rank());
    for (const auto& line : beside_from) log::warn_on_all("{}", line);
    team_ = team_of(*run_.mesh);
  }

  // Keeps other processes out of the run's folder.
  void lock_folder() {
    team_.on_first([&] {
      refuse_misplaced_run(config_);
      run_.lock = std::make_unique<FolderLock>(config_.train.run_dir);
    });
  }

  // Finds what the run continues from.
  void find_resume_point() {
    begin_ = agree_on_resume_point(config_, team_);
    local_ = look_for_local(config_, begin_, *run_.mesh);
    if (!local_->choice) begin_.require_allowed();
  }

  // Chooses the device, and what follows from where the run computes and how it began.
  void settle_device_and_types() {
    say_where_it_runs(world_);
    device_ = settle_device(config_, *run_.mesh);
    keep_warmup(config_, team_);
    keep_dtype(config_, team_, ops::traits_of(device_).own);
  }

  void open_data() {
    run_.data = open_run_data(config_, team_);
    settle_validation_interval(config_, run_.data.stages, team_);
    for (const auto& data : stages()) refuse_unbalanceable(data.stage.config);
  }

  // Comes before what takes seconds, so that a model that cannot fit is refused at once.
  void check_memory_of_stages() {
    for (const auto& data : stages())
      check_memory(data.stage.config, world_, Layout(data.stage.config, world_.size()), device_);
  }

  // Where the host multiplies, measures which path does it fastest.
  void settle_matmul() {
    run_.threads.multiply = !ops::traits_of(device_).is_queued;
    matmul_ = run_.threads.multiply ? settle_matmul_paths(stages().front().stage.config, begin_, team_)
                                    : MatmulChoice{ops::matmul_paths(), "", ""};
  }

  void stop_if_asked() { athanor::stop_if_asked(world_, signals_); }

  void prepare_evaluation(RunEvaluation* evaluation) {
    if (evaluation && config_.eval.interval > 0)
      evaluation->prepare(config_, tokenizer_of(run_.data), data_identity(stages()), team_);
  }

  // The last errors that can be found before the state is filled.
  void check_without_state() {
    check_checkpoint_memory(stages().front().stage.config, world_, *local_, device_);
    if (begin_.from == ResumePoint::From::kNothing) plan_supply(stages(), config_, {}).refuse_shortages();
  }

  void fill(const DataLedger* data_from) {
    run_.state = std::make_unique<TrainState>(config_, data_identity(stages()), *run_.mesh,
                                              TrainStateOptions{.device = device_});
    filled_ = fill_state(*run_.state, begin_, *local_);
    if (data_from) run_.state->position.ledger = *data_from;
  }

  void check_state() {
    refuse_zero_routers(config_, run_.state->model.parameters);
    run_.from_scratch = filled_.random;
    run_.saved_step = filled_.saved_step.value_or(run_.state->position.step);
    supply_ = plan_supply(stages(), config_, run_.state->position);
    supply_.refuse_shortages();
    refuse_other_ramp(stages(), run_.state->position);
    lr_jump_ = look_for_lr_jump(*run_.state);
  }

  // The first part that changes the run's folder.
  void write_folder() {
    announce_armed_faults();
    run_.attempt = context_.attempt = begin_.attempt;
    context_.run_dir = config_.train.run_dir;
    context_.phases.board.begin_attempt(begin_.attempt);
    open_folder(run_, begin_, filled_, matmul_);
    if (lr_jump_ && run_.mesh->is_first()) tell_lr_jump(*lr_jump_, *run_.state, begin_.attempt);
    place_local_checkpoints();
    context_.rank_log.open(RunFolder{config_.train.run_dir}.rank_log(world_.rank(), world_.host()),
                           [&context = context_] { return context.step.load(); });
  }

  void say_what_starts() {
    const TrainState& state = *run_.state;
    athanor::say_what_starts(state, run_.threads);
    team_.on_first([&] { report_kept_checkpoints(state.run_config, run_.mesh->layout(), state.position.step); });
    if (!matmul_.line.empty()) log::info("{}", matmul_.line);
    std::set<std::string> told;  // training phases often have the same
    for (const auto& data : stages())
      for (const auto& line : find_untrainable(data.stage.config))
        if (told.insert(line).second) log::warn_on_all("{}", line);
    for (const auto& line : supply_.lines) log::info("{}", line);
    for (const auto& line : supply_.short_by_skips) log::warn_on_all("{}", line);
  }

  StartedRun take() { return std::move(run_); }

 private:
  const std::vector<StageData>& stages() const { return run_.data.stages; }

  // Until there is a checkpoint in a new place, or on other nodes, the record is that of the old ones.
  void place_local_checkpoints() {
    const bool moves = local_->found && (!local_->place || local_->place->root() != local_->found->root());
    run_.old_local = local_->left;
    if (moves && local_->nodes.is_leader(world_.rank())) run_.old_local.push_back(*local_->found);
    if (!local_->place) return;
    run_.local = LocalPlace{local_->nodes, *local_->place, begin_.attempt};
    if (!local_->found) team_.on_first([&] { record_local(*run_.local, world_); });
  }

  RunConfig config_;
  comm::World& world_;
  RunContext& context_;
  const SignalGuard& signals_;
  StartedRun run_;
  Team team_;
  ResumePoint begin_;
  std::optional<LocalStart> local_;  // after find_resume_point
  at::Device device_ = at::kCPU;
  MatmulChoice matmul_;
  FilledState filled_;
  Supply supply_;
  std::optional<LrJump> lr_jump_;
};

}  // namespace

void require_layout_fits(RunConfig config, int world_size) {
  resolve_model_from(config);
  auto faults = find_layout_faults(config, world_size);
  std::ranges::move(find_group_faults(config), std::back_inserter(faults));
  std::ranges::move(find_contradictions(config), std::back_inserter(faults));
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
  Start start(std::move(config), world, context, signals);
  start.agree_on_settings();
  start.lock_folder();
  start.find_resume_point();
  start.settle_device_and_types();
  start.open_data();
  start.check_memory_of_stages();
  start.settle_matmul();
  start.stop_if_asked();
  start.prepare_evaluation(evaluation);
  start.check_without_state();
  start.fill(data_from);
  start.stop_if_asked();
  start.check_state();
  // Every check has passed: from here on the folder changes.
  start.write_folder();
  start.say_what_starts();
  return start.take();
}

}  // namespace athanor::inline run

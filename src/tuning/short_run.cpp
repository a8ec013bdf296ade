#include "tuning/short_run.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/log.h"
#include "base/process.h"
#include "checkpoint/model_identity.h"
#include "config/precision.h"
#include "config/training_stages.h"
#include "memory/preflight.h"
#include "memory/rank_share.h"
#include "ops/device_traits.h"
#include "run/matmul_choice.h"
#include "run/rank_devices.h"
#include "run/same_settings.h"
#include "saves/fill_state.h"
#include "train/state_pieces.h"
#include "train/train_step.h"
#include "train/unreadable_data.h"

namespace athanor::inline tuning {
namespace {

// Sends what the ranks of devices compute with over the groups between devices, as a run does.
Mesh mesh_of(const RunConfig& config, comm::World& world, at::Device device) {
  Mesh mesh(Layout(config, world.size()), world);
  mesh.use(device, config.parallelism.device_sums);
  return mesh;
}

TrainingStage stage_of(const RunConfig& config) { return {"", 0, config}; }

// The sequences of a training phase, or of a run with a ramp.
double count_sequences(const std::vector<TrainingStage>& parts) {
  double sequences = 0;
  for (const TrainingStage& part : parts)
    sequences += static_cast<double>(part.config.train.global_batch_size * part.config.train.steps);
  return sequences;
}

// Shortens the schedule of `run`, which has as many steps as before, to the share that these steps are. A length that
// is set stays at least 1, since 0 stands for another length.
void shorten_schedule(RunConfig& run, int64_t steps, double sequences_before) {
  const auto in_steps = [&](int64_t length) { return length * steps / run.train.steps; };
  const auto sequences = static_cast<double>(run.train.global_batch_size * steps);
  const auto in_tokens = [&](double length) { return std::floor(length * sequences / sequences_before); };
  OptimizerConfig& o = run.optimizer;
  o.warmup_steps = in_steps(o.warmup_steps);
  o.warmup_tokens = in_tokens(o.warmup_tokens);
  for (int64_t* length : {&o.decay_steps, &o.schedule_steps})
    if (*length > 0) *length = std::max<int64_t>(1, in_steps(*length));
  for (double* length : {&o.decay_tokens, &o.schedule_tokens})
    if (*length > 0) *length = std::max(1.0, in_tokens(*length));
}

}  // namespace

RunConfig short_run_config(const RunConfig& config, int64_t steps) {
  RunConfig without_ramp = config;
  without_ramp.train.batch_ramp.clear();
  without_ramp.train.batch_ramp_lr = BatchRampLr::kNone;
  const TrainingStage first = training_stages(without_ramp).front();
  RunConfig run = first.config;
  shorten_schedule(run, steps,
                   count_sequences(config.train.batch_ramp.empty() ? std::vector{first} : training_stages(config)));
  run.train.steps = steps;
  run.train.validation_interval = 0;
  run.train.cuda_graphs = false;
  const CheckpointConfig settings = std::exchange(run.checkpoint, {});
  run.checkpoint.load = settings.load;
  run.checkpoint.allow_model_change = settings.allow_model_change;  // the folder of model.from may differ so
  run.checkpoint.interval = run.checkpoint.model_interval = 0;
  run.checkpoint.async = false;
  run.eval = {};
  run.faults = {};
  if (run.moe.dispatch == DispatchKind::kAuto) run.moe.dispatch = DispatchKind::kAllToAll;
  if (run.moe.dispatch_chunks == 0) run.moe.dispatch_chunks = 1;
  return run;
}

ShortRuns::ShortRuns(std::vector<RunConfig> configs, comm::World& world)
    : configs_(std::move(configs)), world_(world), mesh_(Layout(configs_.front(), world.size()), world),
      device_(at::kCPU) {
  if (!mesh_.is_first()) log::speak_as_rank(world.rank(), world.host(), log::shown_rank(world.size()) == world.rank());
  for (RunConfig& config : configs_) {
    require_same_settings(config, world);
    resolve_model_from(config);
  }
  settle_threads();
  device_ = agree_on_devices(configs_.front(), world);
  open_data();
  settle_matmul_paths(team_of(mesh_));
  for (const RunConfig& config : configs_) {
    refuse_unbalanceable(config);
    check_memory(config, world, Layout(config, world.size()), device_);
  }
}

void ShortRuns::settle_threads() {
  const ThreadShare threads = threads_of_rank(world_, configs_.front().train.num_threads);
  at::set_num_threads(threads.threads);
  thread_count("data.num_threads", configs_.front().data.num_threads);
}

// The data are the same for all: they differ in optimizers, rates and widths.
void ShortRuns::open_data() {
  RunConfig& first = configs_.front();
  data_ = open_run_data(first, team_of(mesh_));
  const std::string& type_of_first = first.train.dtype;
  for (RunConfig& config : configs_) {
    config.data.seq_len = first.data.seq_len;
    config.train.dtype = type_of_first;
    choose_type(config.train, ops::traits_of(device_).usual_type);
  }
  data_.stages.front().stage = stage_of(first);
  plan_supply(data_.stages, first, {}).refuse_shortages();
}

ShortRun::ShortRun(const RunConfig& config, const ShortRuns& runs)
    : mesh_(mesh_of(config, runs.world(), runs.device())),
      state_(config, data_identity(runs.data().stages), mesh_, {.device = runs.device()}),
      batches_(state_, mesh_, {{stage_of(config), runs.data().stages.front().train, {}}}) {
  ResumePoint begin;
  const LocalStart no_local{RankNodes(runs.world().hosts(), static_cast<int>(config.topology.ranks_per_node))};
  fill_state(state_, begin, no_local);
  refuse_zero_routers(config, state_.model.parameters);
  batches_.enter();
}

double ShortRun::step() {
  agree_on_reading(mesh_.group(GroupKind::kWorld), batches_.failure_of_next());
  const Batch batch = batches_.take();
  const StepReport report = train_step(state_, batch);
  if (report.verdict != Verdict::kApply) return std::numeric_limits<double>::quiet_NaN();
  return report.parts.mean_loss();
}

}  // namespace athanor::inline tuning

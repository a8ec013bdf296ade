#pragma once
// The run configuration. It declares every field once, with its default, allowed values and meaning.
//
// Keys follow established names: those of `transformers` for the model, those of torchtitan for the degrees. checks.h
// has the checks that need several fields.

#include <cstdint>
#include <string>
#include <vector>

#include "base/signals.h"
#include "config/checkpoint_config.h"
#include "config/eval_config.h"
#include "config/faults_config.h"
#include "config/fields.h"
#include "config/model_config.h"
#include "config/moe_config.h"
#include "config/optimizer_config.h"
#include "config/parallelism_config.h"
#include "config/ranges.h"

namespace athanor::inline config {

/// One of several prepared data folders.
struct SourceConfig {
  std::string path;
  double weight = 0;
  std::string name = {};
  double max_epochs = 1;

  void describe(Fields& f) {
    f.field("path", path, "a folder that `athanor prepare` wrote");
    f.field("weight", weight, "its share of the tokens, relative to the other sources' weights", positive());
    f.field("name", name, "its name in logs and metrics; \"\" takes the path");
    f.field("max_epochs", max_epochs,
            "how often an instance may be seen in the run; a share that needs more is refused before step 1; 0 turns "
            "that off",
            not_negative());
  }
};

/// What a token may attend to: all of its instance before it, or only its own document there.
enum class AttentionScope { kInstance, kDocument };
template <>
inline constexpr auto kWords<AttentionScope> = words<AttentionScope>({{"instance", AttentionScope::kInstance},
                                                                      {"document", AttentionScope::kDocument}});

struct DataConfig {
  std::string path;
  int64_t seq_len = 0;
  Choice<AttentionScope> attention_scope = AttentionScope::kInstance;
  int64_t num_threads = 1;
  bool verify = true;
  std::vector<SourceConfig> sources;  ///< replace `path`

  void describe(Fields& f) {
    f.field("path", path,
            "a folder that `athanor prepare` wrote, read for as many epochs as the steps need; or [[data.sources]]");
    f.field("seq_len", seq_len, "tokens in an instance (seq_len - 1 of them are targets); 0 takes the data's",
            between(0, kMaxPositions));
    f.field("attention_scope", attention_scope,
            "what a token may attend to: all of its instance before it, or only its own document there");
    f.field("num_threads", num_threads, "threads that read ahead; they never change the order",
            between(1, kMaxThreads));
    f.field("verify", verify, "compare each block of a shard with its checksum when it is first read");
    f.list("sources", sources, "Several prepared folders, mixed by weight, in place of data.path.");
  }
};

/// A training phase: a part of the run with its own data mix, sequence length and learning rate schedule. Fields that
/// are not set take the run's values.
struct StageConfig {
  std::string name;
  int64_t steps = 0;
  int64_t seq_len = 0;
  int64_t global_batch_size = 0;
  int64_t micro_batch_size = 0;
  double lr = 0;
  double min_lr = -1;
  std::string schedule;
  int64_t warmup_steps = -1;
  int64_t decay_steps = -1;
  int64_t schedule_steps = -1;
  std::string path;
  std::vector<SourceConfig> sources;

  void describe(Fields& f) {
    f.field("name", name, "its name in logs and metrics");
    f.field("steps", steps, "optimizer steps of this training phase", between(1, kMaxSteps));
    f.field("seq_len", seq_len, "tokens in an instance; 0 takes the data's", between(0, kMaxPositions));
    f.field("global_batch_size", global_batch_size, "sequences in a step; 0 takes train.global_batch_size",
            between(0, kMaxSequences));
    f.field("micro_batch_size", micro_batch_size, "sequences at once; 0 takes train.micro_batch_size",
            between(0, kMaxSequences));
    f.field("lr", lr, "learning rate after the phase's warm-up; 0 takes optimizer.lr", zero_or_fp32_up_to(kMaxFp32));
    f.field("min_lr", min_lr, "learning rate at the phase's last step; -1 takes optimizer.min_lr",
            zero_minus_one_or_fp32_up_to(kMaxFp32));
    std::vector<std::string> schedules = words_of<LrSchedule>();
    schedules.insert(schedules.begin(), "");
    f.field("schedule", schedule,
            "form of the learning rate from lr to min_lr within the phase; \"\" takes optimizer.schedule",
            one_of(schedules));
    f.field("warmup_steps", warmup_steps,
            "steps of linear warm-up from 0 at the start of the phase; -1 takes optimizer.warmup_steps in the first "
            "phase and none in later ones",
            between(-1, kMaxSteps));
    f.field("decay_steps", decay_steps, "wsd: steps of the phase's final decay; -1 takes optimizer.decay_steps",
            between(-1, kMaxSteps));
    f.field("schedule_steps", schedule_steps,
            "steps of the phase's schedule; 0: as many as the phase has; -1 takes optimizer.schedule_steps in the "
            "first phase and 0 in later ones",
            between(-1, kMaxSteps));
    f.field("path", path, "a prepared folder for this training phase; \"\" and no sources take the run's data");
    f.list("sources", sources, "The mix of this training phase.");
  }
};

/// The batch size of the first part of a run.
struct BatchRampConfig {
  int64_t sequences = 0;
  double until_tokens = 0;

  void describe(Fields& f) {
    f.field("sequences", sequences, "sequences a step, fewer than train.global_batch_size and than the next entry has",
            between(1, kMaxSequences));
    f.field("until_tokens", until_tokens,
            "the size holds up to the first step after which the run has seen this many tokens in all",
            whole_number_between(1, kMaxPlannedTokens));
  }
};

template <>
inline constexpr auto kWords<Warning> =
    words<Warning>({{"stop", Warning::kStop}, {"save", Warning::kSave}, {"ignore", Warning::kIgnore}});

/// What a rank computes on; kAuto: an accelerator if there is one (ops/device_choice.h).
enum class DeviceKind { kAuto, kCpu, kCuda, kXpu };
template <>
inline constexpr auto kWords<DeviceKind> = words<DeviceKind>(
    {{"auto", DeviceKind::kAuto}, {"cpu", DeviceKind::kCpu}, {"cuda", DeviceKind::kCuda}, {"xpu", DeviceKind::kXpu}});

/// What a loss or gradient that is not finite does.
enum class OnNonFinite { kStop, kSkip, kRollBack };
template <>
inline constexpr auto kWords<OnNonFinite> = words<OnNonFinite>({{"stop", OnNonFinite::kStop},
                                                                {"skip", OnNonFinite::kSkip},
                                                                {"roll_back", OnNonFinite::kRollBack}});

/// What a loss or gradient norm far above that of the steps before does.
enum class OnSpike { kLog, kSkipStep, kRollBack };
template <>
inline constexpr auto kWords<OnSpike> =
    words<OnSpike>({{"log", OnSpike::kLog}, {"skip_step", OnSpike::kSkipStep}, {"roll_back", OnSpike::kRollBack}});

/// How the learning rate follows a batch that is smaller than train.global_batch_size.
enum class BatchRampLr { kNone, kSqrt, kLinear };
template <>
inline constexpr auto kWords<BatchRampLr> =
    words<BatchRampLr>({{"none", BatchRampLr::kNone}, {"sqrt", BatchRampLr::kSqrt}, {"linear", BatchRampLr::kLinear}});

struct TrainConfig {
  std::string run_dir = "runs/default";
  int64_t steps = 1000;
  int64_t global_batch_size = 16;
  int64_t micro_batch_size = 4;
  Choice<DeviceKind> device = DeviceKind::kAuto;
  bool cuda_graphs = false;
  std::string dtype = "bfloat16";
  std::string master_dtype = "float32";
  std::string reduce_dtype = "float32";
  int64_t seed = 1;
  int64_t num_threads = 0;
  int64_t loss_chunk_tokens = 512;
  CountOrAuto validation_interval = 0;
  int64_t validation_sequences = 256;
  std::string stop_after = "0";
  std::string stop_margin = "5m";
  Choice<Warning> on_sigusr1 = Warning::kStop;
  Choice<Warning> on_sigusr2 = Warning::kSave;
  Choice<OnNonFinite> on_non_finite = OnNonFinite::kStop;
  Choice<OnSpike> on_spike = OnSpike::kLog;
  int64_t skip_limit = 10;
  Choice<BatchRampLr> batch_ramp_lr = BatchRampLr::kNone;
  std::vector<StageConfig> stages;
  std::vector<BatchRampConfig> batch_ramp;
  bool micro_batch_not_set = false;  ///< not a field: micro_batch_size was derived (defaults.h, layout/fitted_batch.h)
  bool dtype_was_auto =
      false;  ///< not a field: dtype was chosen for this CPU; a resumed run keeps its type (defaults.h)

  void describe(Fields& f) {
    f.field("run_dir", run_dir, "folder of the run: resolved configuration, metrics, checkpoints, models, log",
            {"the path of a folder; \".\" is the current one",
             [](const std::string& x) { return !x.empty() && x.find('\0') == std::string::npos; }});
    f.field(
        "steps", steps,
        "optimizer steps in all; with [[train.stages]] it is their sum; those of [[train.batch_ramp]] are among them",
        between(1, kMaxSteps));
    f.field("global_batch_size", global_batch_size, "sequences a step; with [[train.batch_ramp]] those after the ramp",
            between(1, kMaxSequences));
    f.field("micro_batch_size", micro_batch_size,
            "sequences that a data rank computes at once; must divide its share of global_batch_size; not set: 4, or "
            "the largest number below it that does",
            between(1, kMaxSequences));
    f.field("device", device, "what each rank computes on; auto: an accelerator if libtorch sees one, else the CPU");
    f.field("cuda_graphs", cuda_graphs,
            "on a GPU, launch forward and backward of a microbatch as one recorded graph, with the same bits");
    f.field("dtype", dtype,
            "type of forward and backward; the master is float32; auto, also if it is not set: bfloat16 if the CPU has "
            "instructions for it, else float32; a resumed run keeps its type",
            one_type_of({"bfloat16", "float32"}, {"auto"}));
    f.field("master_dtype", master_dtype,
            "type of the weights that the optimizer updates; only float32: in bfloat16 an update below 1/256 of a "
            "weight is lost",
            {"float32 (a bfloat16 master loses every update below 1/256 of its weight: norms freeze unnoticed)",
             [](const std::string& x) { return canonical_type_name(x) == "float32"; }, canonical_type_name});
    f.field("reduce_dtype", reduce_dtype, "type of gradients between ranks", one_type_of({"float32", "bfloat16"}));
    f.field("seed", seed, "seed of initialisation and data order", at_least(0));
    f.field("num_threads", num_threads,
            "threads that compute; 0 takes OMP_NUM_THREADS, or this rank's share of the processors that it may run on, "
            "and fewer if steps are too small for them",
            between(0, kMaxThreads));
    f.field("loss_chunk_tokens", loss_chunk_tokens, "logits of at most this many tokens are in memory at a time",
            between(1, kMaxMicrobatchTokens));
    f.field("validation_interval", validation_interval,
            "steps between validation losses; 0 turns them off; auto, also if it is not set: 250 if the data of any "
            "phase have validation instances, else 0; a resumed run keeps its own",
            auto_or_at_least(0));
    f.field("validation_sequences", validation_sequences, "validation instances used each time, at most",
            between(1, kMaxSequences));
    f.field("stop_after", stop_after,
            "an attempt that has run this long saves and stops with code 10, such as \"11h30m\"; 0: no limit",
            duration());
    f.field("stop_margin", stop_margin,
            "the last save begins this long before the end of the job, if the limit of a Slurm or PBS job is found; 0: "
            "such limits are not looked for",
            duration());
    f.field("on_sigusr1", on_sigusr1,
            "what SIGUSR1, a scheduler's warning, does after the step: stop (save, and end with code 10), save, or "
            "ignore");
    f.field("on_sigusr2", on_sigusr2, "the same for SIGUSR2");
    f.field(
        "on_non_finite", on_non_finite,
        "what a loss or gradient that is not finite does, unless a node is at fault: stop (end with code 76), "
        "skip (do the step with the next batch), or roll_back (continue from the newest checkpoint, with the data that "
        "come after the batch)");
    f.field("on_spike", on_spike,
            "what a loss or gradient norm far above that of the last 128 steps does: log (a warning), skip_step (do "
            "the step with the next batch), or roll_back (as on_non_finite)");
    f.field("skip_limit", skip_limit,
            "batches that a process may pass over in these ways; a further one that is not finite ends it with code 76",
            between(0, kMaxSteps));
    f.field("batch_ramp_lr", batch_ramp_lr,
            "what multiplies the learning rate of a step with a smaller batch, of b of global_batch_size B sequences: "
            "none (1), sqrt (√(b / B)), or linear (b / B)");
    f.list("stages", stages, "The training phases of the run, one after another; without any, the run is one phase.");
    f.list("batch_ramp", batch_ramp,
           "A batch size that grows by the tokens seen: one entry for each size before train.global_batch_size.");
  }
};

struct MetricsConfig {
  int64_t log_interval = 1;
  bool tensorboard = true;
  double gemm_peak_tflops = 0.0;
  int64_t timeline_step = 0;
  int64_t layer_statistics = 0;
  int64_t noise_scale_interval = 0;
  int64_t update_watch_interval = 0;

  void describe(Fields& f) {
    f.field(
        "log_interval", log_interval,
        "steps between the lines that a run prints where its output is no terminal; the first and the last step are "
        "always printed",
        between(1, kMaxSteps));
    f.field("tensorboard", tensorboard, "write TensorBoard events into the run folder");
    f.field("gemm_peak_tflops", gemm_peak_tflops,
            "the most that one rank's device multiplies in any type that training could use; MFU is a share of this "
            "times the ranks; 0 measures it at start",
            between(0.0, 1e9));
    f.field("timeline_step", timeline_step,
            "the step whose time line is written: what each rank computed, waited for, sent and saved when, as a trace "
            "that Perfetto opens, and of a pipeline as a picture too; 0: none",
            at_least(0));
    f.field("layer_statistics", layer_statistics,
            "steps from one to the next whose norms of gradients, weights, updates and activations of each layer, and "
            "largest attention logits, go to metrics.jsonl, and with histograms to TensorBoard; 0: none",
            at_least(0));
    f.field("noise_scale_interval", noise_scale_interval,
            "steps from one measurement of the gradient noise scale to the next; 0: none", at_least(0));
    f.field("update_watch_interval", update_watch_interval,
            "steps from one look at what rounding does to the updates of each parameter to the next: updates that are "
            "lost, second moments that underflow, values that are not finite, matrices of Muon that diverge; 0: none",
            at_least(0));
  }
};

struct RunConfig {
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  OptimizerConfig optimizer;
  MoeConfig moe;
  CheckpointConfig checkpoint;
  MetricsConfig metrics;
  EvalConfig eval;
  ParallelismConfig parallelism;
  TopologyConfig topology;
  IntegrityConfig integrity;
  FaultsConfig faults;

  void describe(Fields& f) {
    f.table("model", model, "The decoder.");
    f.table("data", data, "The data that it reads.");
    f.table("train", train, "The run.");
    f.table("optimizer", optimizer, "The update.");
    f.table("moe", moe, "Routing.");
    f.table("checkpoint", checkpoint, "What is saved.");
    f.table("metrics", metrics, "What is shown.");
    f.table("eval", eval, "Evaluation on tasks during training, and rules on its scores.");
    f.table("parallelism", parallelism, "How ranks share the work.");
    f.table("topology", topology, "How ranks are connected.");
    f.table("integrity", integrity, "Silent corruption.");
    f.table("faults", faults, "Rehearsals: what the run shall suffer on purpose.");
  }
};

}  // namespace athanor::inline config

#include "train/run.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <optional>

#include "arch/flops.h"
#include "arch/inventory.h"
#include "base/exit_codes.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/process.h"
#include "base/signals.h"
#include "base/text.h"
#include "parallel/pipeline_timeline.h"
#include "parallel/share.h"
#include "train/checkpointing.h"
#include "train/gemm_peak.h"
#include "train/metrics_log.h"
#include "train/microbatch.h"
#include "train/preflight.h"
#include "train/rank_metrics.h"
#include "train/router_metrics.h"
#include "train/run_folder.h"
#include "train/start.h"
#include "train/train_step.h"
#include "train/unread.h"
#include "train/validation.h"

namespace athanor {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

bool due(int64_t step, int64_t interval) { return interval > 0 && step % interval == 0; }

// A disk that is full costs what was to be written, never the run. Every rank throws what one has met.
bool try_to_save(const char* what, bool speaks, const std::function<void()>& save) {
  try {
    save();
    return true;
  } catch (const IoError& error) {
    if (speaks)
      log::error("{} was not written: {}; what was there before is kept and the run goes on", what, error.what());
    return false;
  }
}

class Run {
 public:
  Run(StartedRun started, std::atomic<int64_t>& step_underway)
      : stages_(std::move(started.stages)), mesh_(std::move(started.mesh)), state_(std::move(started.state)),
        world_(mesh_->group(GroupKind::kWorld)), traffic_(*mesh_), step_underway_(step_underway),
        first_step_(state_->step), from_scratch_(started.from_scratch) {
    const auto& config = state_->config;
    if (mesh_->is_first()) metrics_.emplace(config.train.run_dir, config.metrics.tensorboard, first_step_);
    gemm_peak_ = config_peak_unknown() ? measure_peak() : config.metrics.gemm_peak_tflops * 1e12;
  }

  int loop() {
    std::optional<UnreadData> unread;
    try {
      return steps();
    } catch (const UnreadData& failure) {
      unread = failure;
    }
    return end_unread(*unread);
  }

 private:
  int steps() {
    const SignalGuard signals("finishing the step and saving");
    const auto& config = state_->config;
    bool saved = true;
    while (state_->step < config.train.steps) {
      if (!loader_ || state_->step == state_->stage.end()) enter_stage();
      step_underway_ = state_->step + 1;
      StepMetrics metrics = one_step();
      const int stop_signal = stop_signal_of_any(signals);
      const bool stopping = stop_signal != 0;
      const bool last = state_->step == config.train.steps;
      if (due(state_->step, config.train.validation_interval) || (last && config.train.validation_interval > 0))
        validate(metrics);
      show(metrics);
      if (due(state_->step, config.checkpoint.model_interval) || (last && config.checkpoint.model_interval > 0))
        save_model_only();
      if (due(state_->step, config.checkpoint.interval) || ((last || stopping) && config.checkpoint.interval > 0)) {
        saved = try_to_save("the checkpoint", mesh_->is_first(), [&] { save_checkpoint(*state_); });
        if (saved) saved_step_ = state_->step;
      }
      fault_point("train.after_step");
      if (stopping) return stop(stop_signal);
      if (unread_) throw UnreadData(*unread_);
    }
    if (!saved && mesh_->is_first())
      log::error("the run is complete but its last checkpoint is not on disk: free some space and run it again");
    return saved ? 0 : 1;
  }

  // The stage that the next step is in: its data, from where each source's cursor stands.
  void enter_stage() {
    const auto holds_next = [this](const StageData& data) { return state_->step < data.stage.end(); };
    data_ = &*std::find_if(stages_.begin(), stages_.end(), holds_next);
    const auto& config = data_->stage.config;
    state_->enter(data_->stage);
    if (stages_.size() > 1) log::info("step {}: {} begins", state_->step + 1, data_->stage.name);
    std::vector<int64_t> held;  // all
    if (!state_->plan.is_trivial())
      held = sequences_of(state_->layout, mesh_->data_rank(), config.train.micro_batch_size);
    loader_.emplace(data_->train, static_cast<uint64_t>(config.train.seed), state_->ledger,
                    config.train.global_batch_size, static_cast<int>(config.data.num_threads),
                    std::max<int>(2, static_cast<int>(config.data.num_threads)), std::move(held));
    agree_on_reading(world_, failure_of_next_batch());
    flops_per_step_ = count_train_flops(config.model, config.train.global_batch_size, config.data.seq_len);
    unigram_entropies_.clear();
  }

  StepMetrics one_step() {
    const auto start = Clock::now();
    const Batch batch = loader_->next();
    const double waited_s = std::exchange(waited_for_data_s_, 0), data_s = seconds_since(start) + waited_s;
    const StepReport report = train_step(*state_, batch);
    if (report.verdict == Verdict::kRefuse) refuse(report);
    if (report.step == first_step_ + 1)
      check_first_routing(state_->config.model, report.parts.routers, batch.num_sequences * batch.seq_len);
    if (from_scratch_ && report.step == 1)
      report_first_loss(state_->config.model, report.parts.loss_sum / static_cast<double>(report.parts.num_targets));
    if (report.step == state_->config.metrics.timeline_step && state_->layout.pipeline() > 1)
      write_timeline(state_->pipeline, mesh_->group(GroupKind::kPipeline),
                     RunFolder{state_->config.train.run_dir}.log(), report.step, mesh_->is_first());
    StepMetrics metrics = summarize(report, batch);
    metrics.data_s = data_s;
    metrics.step_s = seconds_since(start) + waited_s;
    // Faster than the yardstick: that was taken beside other work.
    if (world_.size() == 1 && config_peak_unknown() && metrics.flops > gemm_peak_ * metrics.step_s) {
      gemm_peak_ = std::max(gemm_peak_, measure_peak());
      metrics.gemm_peak_flops = gemm_peak_;
    }
    return metrics;
  }

  bool config_peak_unknown() const { return state_->config.metrics.gemm_peak_tflops == 0; }
  // Of all ranks together, measured at the same time: they may share processors.
  double measure_peak() const {
    world_.barrier();
    const Tensor peak =
        at::full({1}, measure_gemm_peak_flops(state_->config.train.dtype == "bfloat16" ? at::kBFloat16 : at::kFloat),
                 at::kDouble);
    world_.all_reduce(peak).wait();
    return peak.item<double>();
  }

  // A signal that has reached one rank ends the run of all, after the same step. 0: none. A batch that one rank cannot
  // read does the same, and is known by now, since it is read ahead: it goes in the same number, above any signal's.
  int stop_signal_of_any(const SignalGuard& signals) {
    constexpr int64_t kSignals = 1024;
    const std::exception_ptr failure = failure_of_next_batch();
    const int64_t unread = failure ? world_.size() - world_.rank() : 0;  // the lowest rank has the largest number
    const Tensor number = at::full({1}, unread * kSignals + signals.stop_signal().value_or(0), at::kLong);
    world_.all_reduce(number, comm::Reduction::kMax).wait();
    const int64_t largest = number.item<int64_t>();
    if (largest >= kSignals)
      unread_.emplace(world_.size() - static_cast<int>(largest / kSignals), describe_unread(failure));
    return static_cast<int>(largest % kSignals);
  }

  // Waits for the batch of the next step, if this stage has one more; null if it can be read.
  std::exception_ptr failure_of_next_batch() {
    if (state_->step == state_->config.train.steps || state_->step == state_->stage.end()) return nullptr;
    const auto start = Clock::now();
    std::exception_ptr failure = loader_->failure();
    waited_for_data_s_ += seconds_since(start);
    return failure;
  }

  // Data can no longer be read, and all ranks know: what they have is saved, and the rank that met it says so.
  int end_unread(const UnreadData& failure) {
    const int64_t step = state_->step;
    if (saved_step_ != step && state_->config.checkpoint.interval > 0 &&
        try_to_save("the checkpoint", mesh_->is_first(), [&] { save_checkpoint(*state_); }))
      saved_step_ = step;
    std::string kept = fmt::format("what came after step {} is not saved", saved_step_);
    if (step == first_step_) kept = "no step was done since the run was started";
    if (step > first_step_ && saved_step_ == step)
      kept = fmt::format("step {} is saved, so run the same command again when it can be read", step);
    step_underway_ = step + 1;
    if (world_.rank() == failure.rank())
      throw Error(fmt::format("step {}: {}; {}", step + 1, failure.what(), kept), exit_code::kIo);
    log::warn("step {}: {}; {}", step + 1, failure.what(), kept);
    return exit_code::kIo;
  }

  StepMetrics summarize(const StepReport& report, const Batch& batch) {
    const auto& config = state_->config;
    const double sequences = static_cast<double>(batch.num_sequences),
                 layers = static_cast<double>(std::max<int64_t>(1, config.model.num_sparse_layers()));
    const double tokens = sequences * static_cast<double>(batch.seq_len);
    StepMetrics m;
    m.step = report.step;
    m.loss = report.parts.loss_sum / static_cast<double>(report.parts.num_targets);
    m.aux_loss = report.parts.aux_sum / (layers * sequences);
    m.z_loss = report.parts.z_sum / (layers * tokens);
    m.grad_norm = report.grad_norm;
    m.lr = report.lr;
    m.changed_share = static_cast<double>(report.changed) / static_cast<double>(count_parameters(config.model));
    m.tokens = batch.num_sequences * batch.seq_len;
    m.tokens_seen = state_->tokens_seen;
    if (stages_.size() > 1) m.stage = state_->stage.name;
    if (state_->ledger.sources.size() > 1) {
      for (const auto& [hash, source] : state_->ledger.sources) m.tokens_drawn[source.name] += source.tokens_drawn();
    }
    m.flops = flops_per_step_;
    m.gemm_peak_flops = gemm_peak_;
    m.forward_s = report.forward_s;
    m.backward_s = report.backward_s;
    m.optimizer_s = report.optimizer_s;
    m.memory_bytes = resident_bytes();
    m.peak_memory_bytes = peak_resident_bytes();
    describe_routers(report.parts.routers, m.tokens, m);
    if (world_.size() > 1) describe_ranks(report, m);
    return m;
  }

  void describe_ranks(const StepReport& report, StepMetrics& m) {
    m.rank_norms = report.rank_norms;
    m.forward_comm_s = report.forward_wait_s;
    m.backward_comm_s = report.backward_wait_s;
    m.traffic = traffic_.take();
    if (warned_of_imbalance_) return;
    const auto imbalance = describe_imbalance(m, mesh_->layout(), mesh_->world().hosts());
    if (!imbalance) return;
    log::warn("step {}: {}", m.step, *imbalance);
    warned_of_imbalance_ = true;
  }

  // Each source's held-out loss, and their mean by the shares of the mix.
  void validate(StepMetrics& metrics) {
    const auto& validation = data_->validation;
    double loss = 0;
    for (size_t i = 0; i < validation.size(); ++i) {
      const auto& [name, share, dataset] = validation[i];
      const auto sequences = static_cast<double>(state_->config.train.validation_sequences);
      double source_loss = 0;
      try {
        source_loss = validation_loss(state_->pipeline, dataset, std::max<int64_t>(1, std::llround(share * sequences)),
                                      state_->stage.config, state_->data.eos_id, *mesh_);
        if (i == unigram_entropies_.size())
          unigram_entropies_.push_back(
              unigram_entropy(dataset, *mesh_, [this](int64_t num_bytes) { mesh_->world().note_work(num_bytes); }));
      } catch (const UnreadData& failure) {  // on all ranks: the step is shown and saved before the run ends
        unread_ = failure;
        return;
      }
      log::info("step {}: validation loss {:.4f}{} (unigram entropy of the same split: {:.4f})", metrics.step,
                source_loss, validation.size() > 1 ? " of " + name : "", unigram_entropies_[i]);
      if (validation.size() > 1) metrics.validation_losses[name] = source_loss;
      loss += share * source_loss;
    }
    if (validation.empty()) return;
    metrics.validation_loss = loss;
    if (validation.size() > 1) log::info("step {}: validation loss {:.4f} of the mix", metrics.step, loss);
  }

  void show(const StepMetrics& metrics) {
    if (!metrics_) return;
    fmt::print("{}\n", format_step_line(metrics));
    std::fflush(stdout);
    metrics_->write(metrics);
  }

  void save_model_only() {
    try_to_save("the model", mesh_->is_first(),
                [&] { log::info("model for transformers: {}", save_model(*state_).string()); });
  }

  [[noreturn]] void refuse(const StepReport& report) const {
    const std::string where = first_of_any(first_non_finite_gradient(state_->parameters));
    fail<Error>(
        "step {}: the loss is {} and the gradient norm {}; {}. Nothing was updated. Resume from the checkpoint "
        "before with a lower optimizer.lr, or look at the data of this step ({})",
        report.step, report.parts.loss_sum, report.grad_norm,
        where.empty() ? "every gradient is finite" : "the first gradient that is not finite is that of " + where,
        describe_position(state_->ledger));
  }

  // The first text that is not empty, by rank.
  std::string first_of_any(const std::string& text) const {
    const auto texts = texts_on_first(world_, text);
    const auto found = std::ranges::find_if(texts, [](const std::string& each) { return !each.empty(); });
    return text_of_first(world_, found == texts.end() ? "" : *found);
  }

  int stop(int signal_number) const {
    log::info("stopped by signal {} after step {}; run the same command again to go on", signal_number, state_->step);
    return 128 + signal_number;
  }

  std::vector<StageData> stages_;
  const StageData* data_ = nullptr;  // of the stage underway
  std::unique_ptr<Mesh> mesh_;
  std::unique_ptr<TrainState> state_;
  comm::Communicator& world_;
  TrafficMeter traffic_;
  bool warned_of_imbalance_ = false;
  std::atomic<int64_t>& step_underway_;
  int64_t first_step_;
  bool from_scratch_;
  int64_t saved_step_ = first_step_;   // of the newest full checkpoint
  double waited_for_data_s_ = 0;       // of the next step
  std::optional<UnreadData> unread_;   // ends the run after this step
  std::optional<MetricsLog> metrics_;  // of the first rank
  std::optional<Loader> loader_;
  double flops_per_step_ = 0, gemm_peak_ = 0;
  std::vector<double> unigram_entropies_;  // of the stage's validation sources, as far as they were needed
};

}  // namespace

int run_training(RunConfig config, comm::World& world, std::atomic<int64_t>& step) {
  Run run(start_run(std::move(config), world), step);
  return run.loop();
}

}  // namespace athanor

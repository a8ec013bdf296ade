#include "train/run.h"

#include <fmt/core.h>

#include <chrono>
#include <functional>

#include "arch/flops.h"
#include "arch/inventory.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/process.h"
#include "base/signals.h"
#include "base/text.h"
#include "train/checkpointing.h"
#include "train/gemm_peak.h"
#include "train/metrics_log.h"
#include "train/preflight.h"
#include "train/run_folder.h"
#include "train/start.h"
#include "train/train_step.h"
#include "train/validation.h"

namespace athanor {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

bool due(int64_t step, int64_t interval) { return interval > 0 && step % interval == 0; }

// A disk that is full costs what was to be written, never the run.
bool try_to_save(const char* what, const std::function<void()>& save) {
  try {
    save();
    return true;
  } catch (const IoError& error) {
    log::error("{} was not written: {}; what was there before is kept and the run goes on", what, error.what());
    return false;
  }
}

std::vector<double> load_max_over_mean(const Tensor& tokens_per_expert) {
  std::vector<double> loads;
  if (!tokens_per_expert.defined()) return loads;
  const Tensor counts = tokens_per_expert.to(at::kDouble);
  for (int64_t layer = 0; layer < counts.size(0); ++layer) {
    loads.push_back(counts[layer].max().item<double>() / std::max(counts[layer].mean().item<double>(), 1e-300));
  }
  return loads;
}

class Run {
 public:
  explicit Run(StartedRun started)
      : data_(std::move(started.data)), state_(std::move(started.state)), first_step_(state_->step),
        from_scratch_(started.from_scratch),
        metrics_(state_->config.train.run_dir, state_->config.metrics.tensorboard, first_step_),
        loader_(data_.train, static_cast<uint64_t>(state_->config.train.seed), state_->cursor,
                state_->config.train.global_batch_size, static_cast<int>(state_->config.data.num_threads)) {
    const auto& config = state_->config;
    flops_per_step_ = count_train_flops(config.model, config.train.global_batch_size, config.data.seq_len);
    gemm_peak_ = config.metrics.gemm_peak_tflops > 0
                     ? config.metrics.gemm_peak_tflops * 1e12
                     : measure_gemm_peak_flops(config.train.dtype == "bfloat16" ? at::kBFloat16 : at::kFloat);
  }

  int loop() {
    const SignalGuard signals("finishing the step and saving");
    const auto& config = state_->config;
    bool saved = true;
    while (state_->step < config.train.steps) {
      StepMetrics metrics = one_step();
      const bool stopping = signals.stop_signal().has_value();
      const bool last = state_->step == config.train.steps;
      if (due(state_->step, config.train.validation_interval) || (last && config.train.validation_interval > 0))
        validate(metrics);
      show(metrics);
      if (due(state_->step, config.checkpoint.model_interval) || (last && config.checkpoint.model_interval > 0))
        save_model_only();
      if (due(state_->step, config.checkpoint.interval) || ((last || stopping) && config.checkpoint.interval > 0)) {
        saved = try_to_save("the checkpoint", [&] { save_checkpoint(*state_); });
      }
      fault_point("train.after_step");
      if (stopping) return stop(*signals.stop_signal());
    }
    if (!saved)
      log::error("the run is complete but its last checkpoint is not on disk: free some space and run it again");
    return saved ? 0 : 1;
  }

 private:
  StepMetrics one_step() {
    const auto start = Clock::now();
    const Batch batch = loader_.next();
    const double data_s = seconds_since(start);
    const StepReport report = train_step(*state_, batch);
    if (report.verdict == Verdict::kRefuse) refuse(report);
    if (from_scratch_ && report.step == 1)
      report_first_loss(state_->config.model, report.parts.loss_sum / static_cast<double>(report.parts.num_targets));
    StepMetrics metrics = summarize(report, batch);
    metrics.data_s = data_s;
    metrics.step_s = seconds_since(start);
    return metrics;
  }

  StepMetrics summarize(const StepReport& report, const Batch& batch) const {
    const auto& config = state_->config;
    const double sequences = static_cast<double>(batch.num_sequences),
                 layers = static_cast<double>(config.model.num_hidden_layers);
    const double tokens = sequences * static_cast<double>(batch.seq_len);
    StepMetrics m;
    m.step = report.step;
    m.loss = report.parts.loss_sum / static_cast<double>(report.parts.num_targets);
    m.aux_loss = report.parts.aux_sum / (layers * sequences);
    m.z_loss = report.parts.z_sum / (layers * tokens);
    m.router_entropy = report.parts.entropy_sum / (layers * tokens);
    m.grad_norm = report.grad_norm;
    m.lr = report.lr;
    m.changed_share = static_cast<double>(report.changed) / static_cast<double>(state_->parameters.num_elements());
    m.tokens = batch.num_sequences * batch.seq_len;
    m.tokens_seen = state_->tokens_seen;
    m.flops = flops_per_step_;
    m.gemm_peak_flops = gemm_peak_;
    m.forward_s = report.forward_s;
    m.backward_s = report.backward_s;
    m.optimizer_s = report.optimizer_s;
    m.memory_bytes = resident_bytes();
    m.peak_memory_bytes = peak_resident_bytes();
    m.expert_load_max_over_mean = load_max_over_mean(report.parts.tokens_per_expert);
    return m;
  }

  void validate(StepMetrics& metrics) {
    if (!data_.validation) return;
    metrics.validation_loss = validation_loss(state_->decoder, *data_.validation, state_->config, state_->data.eos_id);
    if (!unigram_entropy_) unigram_entropy_ = unigram_entropy(*data_.validation);
    log::info("step {}: validation loss {:.4f} (unigram entropy of the same split: {:.4f})", metrics.step,
              *metrics.validation_loss, *unigram_entropy_);
  }

  void show(const StepMetrics& metrics) {
    fmt::print("{}\n", format_step_line(metrics));
    std::fflush(stdout);
    metrics_.write(metrics);
  }

  void save_model_only() {
    try_to_save("the model", [&] { log::info("model for transformers: {}", save_model(*state_).string()); });
  }

  [[noreturn]] void refuse(const StepReport& report) const {
    const std::string where = first_non_finite_gradient(state_->parameters);
    fail<Error>(
        "step {}: the loss is {} and the gradient norm {}; {}. Nothing was updated. Resume from the checkpoint "
        "before with a lower optimizer.lr, or look at the data of this step (epoch {}, sample {})",
        report.step, report.parts.loss_sum, report.grad_norm,
        where.empty() ? "every gradient is finite" : "the first gradient that is not finite is that of " + where,
        state_->cursor.epoch, state_->cursor.next);
  }

  int stop(int signal_number) const {
    log::info("stopped by signal {} after step {}; run the same command again to go on", signal_number, state_->step);
    return 128 + signal_number;
  }

  RunData data_;
  std::unique_ptr<TrainState> state_;
  int64_t first_step_;
  bool from_scratch_;
  MetricsLog metrics_;
  Loader loader_;
  double flops_per_step_ = 0, gemm_peak_ = 0;
  std::optional<double> unigram_entropy_;
};

}  // namespace

int run_training(RunConfig config) {
  Run run(start_run(std::move(config)));
  return run.loop();
}

}  // namespace athanor

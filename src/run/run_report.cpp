#include "run/run_report.h"

#include <fmt/core.h>

#include "base/shell_words.h"
#include "base/text.h"
#include "checkpoint/rotation.h"
#include "record/run_folder.h"
#include "saves/kept_checkpoints.h"

namespace athanor::inline run {

void RunReport::add(const StepMetrics& metrics) {
  ++steps_;
  tokens_ += metrics.tokens;
  seconds_ += metrics.step_s;
  flops_ += metrics.flops;
  peak_flops_ += metrics.gemm_peak_flops * metrics.step_s;
  if (!metrics.validation_loss) return;
  last_ = Validation{metrics.step, *metrics.validation_loss};
  if (!best_ || last_->loss < best_->loss) best_ = last_;
}

std::vector<std::string> RunReport::lines(const RunConfig& config, int64_t step) const {
  const std::string& run = config.train.run_dir;
  if (steps_ == 0)
    return {
        fmt::format("{} is complete at step {}: raise train.steps to continue, or name another "
                    "train.run_dir to begin a new run",
                    run, step)};
  std::vector<std::string> lines = {fmt::format(
      "complete: {} steps and {} tokens in {} ({} tokens/s, MFU {}%)", steps_,
      format_thousands(static_cast<double>(tokens_)), format_duration(seconds_),
      format_thousands(static_cast<double>(tokens_) / seconds_), format_digits(100 * flops_ / peak_flops_))};
  if (steps_ < step) lines.back() += fmt::format("; with earlier attempts {} steps", step);
  if (last_)
    lines.push_back(fmt::format("validation loss {:.4f} at step {}; the lowest was {:.4f} at step {}", last_->loss,
                                last_->step, best_->loss, best_->step));
  if (config.checkpoint.model_interval > 0)
    lines.push_back(fmt::format("the model: {}", (RunFolder{run}.models() / step_folder_name(step)).string()));
  const std::string word = shell_word(run);
  if (saves_nothing(config.checkpoint)) {
    lines.emplace_back(
        "nothing was saved: checkpoint.interval and checkpoint.model_interval are 0, so the weights are lost");
    lines.push_back(fmt::format("next: athanor plot {}", word));
    return lines;
  }
  lines.push_back(
      fmt::format("next: athanor plot {}, athanor generate {} --prompt \"...\", or athanor export {} --out FOLDER",
                  word, word, word));
  return lines;
}

}  // namespace athanor::inline run

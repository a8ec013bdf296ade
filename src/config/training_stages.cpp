#include "config/training_stages.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace athanor::inline config {
namespace {

std::vector<SourceConfig> mix_of(const std::string& path, const std::vector<SourceConfig>& sources) {
  if (path.empty()) return sources;
  return {{.path = path, .weight = 1, .name = "", .max_epochs = 0}};
}

// Returns the run's configuration with the values that the training phase sets. A decay or a warm-up belongs to its
// phase, so later phases do not warm up again unless they set a warm-up.
RunConfig config_of(const RunConfig& run, const StageConfig& stage, bool first) {
  RunConfig c = run;
  c.train.steps = stage.steps;
  if (stage.global_batch_size > 0) c.train.global_batch_size = stage.global_batch_size;
  if (stage.micro_batch_size > 0) c.train.micro_batch_size = stage.micro_batch_size;
  if (stage.lr > 0) c.optimizer.lr = stage.lr;
  if (stage.min_lr >= 0) c.optimizer.min_lr = stage.min_lr;
  if (!stage.schedule.empty()) c.optimizer.schedule = stage.schedule;
  if (!first) c.optimizer.warmup_steps = 0;
  if (stage.warmup_steps >= 0) c.optimizer.warmup_steps = stage.warmup_steps;
  if (stage.decay_steps >= 0) c.optimizer.decay_steps = stage.decay_steps;
  if (!first) c.optimizer.schedule_steps = 0;
  if (stage.schedule_steps >= 0) c.optimizer.schedule_steps = stage.schedule_steps;
  const bool own_data = !stage.path.empty() || !stage.sources.empty();
  c.data.sources = own_data ? mix_of(stage.path, stage.sources) : mix_of(run.data.path, run.data.sources);
  c.data.path.clear();
  // Instances of another length are other data, so a phase with its own data takes their length.
  if (stage.seq_len > 0 || own_data) c.data.seq_len = stage.seq_len;
  return c;
}

double lr_factor(const TrainConfig& train, int64_t sequences) {
  const double share = static_cast<double>(sequences) / static_cast<double>(train.global_batch_size);
  return train.batch_ramp_lr == BatchRampLr::kLinear ? share
         : train.batch_ramp_lr == BatchRampLr::kSqrt ? std::sqrt(share)
                                                     : 1;
}

// A part of the run with one batch size, in which the schedule of the whole run continues.
TrainingStage ramp_part(const RunConfig& run, const std::string& batch_key, int64_t begin, int64_t sequences,
                        int64_t steps) {
  StageConfig part;
  part.steps = steps;
  part.global_batch_size = sequences;
  RunConfig c = config_of(run, part, true);
  // Every schedule is linear in both.
  c.optimizer.lr *= lr_factor(run.train, sequences);
  c.optimizer.min_lr *= lr_factor(run.train, sequences);
  if (c.optimizer.schedule_tokens == 0 && c.optimizer.schedule_steps == 0) c.optimizer.schedule_steps = run.train.steps;
  return {fmt::format("batch of {}", sequences), begin, std::move(c), 0, true, batch_key};
}

// Each part has at least one step, also of a ramp that the checks refuse.
std::vector<TrainingStage> ramp_parts(RunConfig run) {
  const auto ramp = std::exchange(run.train.batch_ramp, {});  // each part gets a copy of the others
  std::vector<TrainingStage> parts;
  int64_t begin = 0, tokens = 0;
  for (size_t i = 0; i < ramp.size(); ++i) {
    const auto& [sequences, until_tokens] = ramp[i];
    const int64_t step_tokens = std::max<int64_t>(1, sequences) * run.data.seq_len,
                  left = std::max<int64_t>(1, static_cast<int64_t>(until_tokens) - tokens),
                  steps = (left + step_tokens - 1) / step_tokens;
    parts.push_back(ramp_part(run, fmt::format("train.batch_ramp[{}].sequences", i), begin, sequences, steps));
    begin += steps;
    tokens += steps * step_tokens;
  }
  parts.push_back(ramp_part(run, "train.global_batch_size", begin, run.train.global_batch_size,
                            std::max<int64_t>(1, run.train.steps - begin)));
  return parts;
}

}  // namespace

int64_t TrainingStage::tokens_between(int64_t from, int64_t to) const {
  const int64_t steps = std::min(to, end()) - std::max(from, begin);
  return std::max<int64_t>(0, steps) * config.train.global_batch_size * config.data.seq_len;
}

int64_t count_schedule_steps(const RunConfig& stage) {
  return stage.optimizer.schedule_steps > 0 ? stage.optimizer.schedule_steps : stage.train.steps;
}

std::vector<TrainingStage> training_stages(const RunConfig& config) {
  if (!config.train.batch_ramp.empty() && config.train.stages.empty() && config.data.seq_len > 0)
    return ramp_parts(config);
  std::vector<TrainingStage> stages;
  if (config.train.stages.empty()) {
    StageConfig whole;
    whole.steps = config.train.steps;
    stages.push_back({"", 0, config_of(config, whole, true)});
    stages.back().config.data.seq_len = config.data.seq_len;
    return stages;
  }
  RunConfig run = config;
  run.train.stages.clear();  // each phase gets a copy: with them the time would be quadratic
  for (const auto& stage : config.train.stages) {
    const bool first = stages.empty();
    const auto name = stage.name.empty() ? fmt::format("stage {}", stages.size() + 1) : stage.name;
    const int64_t begin = first ? 0 : stages.back().end();
    stages.push_back({name, begin, config_of(run, stage, first), begin});
  }
  return stages;
}

}  // namespace athanor::inline config

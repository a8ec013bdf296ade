#include "config/training_stages.h"

#include <fmt/core.h>

namespace athanor {
namespace {

std::vector<SourceConfig> mix_of(const std::string& path, const std::vector<SourceConfig>& sources) {
  if (path.empty()) return sources;
  return {{.path = path, .weight = 1, .name = "", .max_epochs = 0}};
}

// Returns the run's configuration with the values that the training phase sets. A decay or a warm-up belongs to its
// phase, so later phases do not warm up again unless they set a warm-up.
RunConfig config_of(const RunConfig& run, const StageConfig& stage, bool first) {
  RunConfig c = run;
  c.train.stages.clear();
  c.train.steps = stage.steps;
  if (stage.global_batch_size > 0) c.train.global_batch_size = stage.global_batch_size;
  if (stage.micro_batch_size > 0) c.train.micro_batch_size = stage.micro_batch_size;
  if (stage.lr > 0) c.optimizer.lr = stage.lr;
  if (stage.min_lr >= 0) c.optimizer.min_lr = stage.min_lr;
  if (!stage.schedule.empty()) c.optimizer.schedule = stage.schedule;
  if (!first) c.optimizer.warmup_steps = 0;
  if (stage.warmup_steps >= 0) c.optimizer.warmup_steps = stage.warmup_steps;
  if (stage.decay_steps >= 0) c.optimizer.decay_steps = stage.decay_steps;
  const bool own_data = !stage.path.empty() || !stage.sources.empty();
  c.data.sources = own_data ? mix_of(stage.path, stage.sources) : mix_of(run.data.path, run.data.sources);
  c.data.path.clear();
  // Instances of another length are other data, so a phase with its own data takes their length.
  if (stage.seq_len > 0 || own_data) c.data.seq_len = stage.seq_len;
  return c;
}

}  // namespace

std::vector<TrainingStage> training_stages(const RunConfig& config) {
  std::vector<TrainingStage> stages;
  if (config.train.stages.empty()) {
    StageConfig whole;
    whole.steps = config.train.steps;
    stages.push_back({"", 0, config_of(config, whole, true)});
    stages.back().config.data.seq_len = config.data.seq_len;
    return stages;
  }
  for (const auto& stage : config.train.stages) {
    const bool first = stages.empty();
    const auto name = stage.name.empty() ? fmt::format("stage {}", stages.size() + 1) : stage.name;
    stages.push_back({name, first ? 0 : stages.back().end(), config_of(config, stage, first)});
  }
  return stages;
}

}  // namespace athanor

#include "run/lr_jump.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/text.h"
#include "config/changes.h"
#include "config/dump.h"
#include "config/training_stages.h"
#include "optim/schedule.h"

namespace athanor::inline run {
namespace {

constexpr double kSame = 0.01;  // smaller than what a step of a warm-up of 100 changes

// The training phase, or part of a ramp, that update `step` belongs to.
size_t index_of_stage(const std::vector<TrainingStage>& stages, int64_t step) {
  const auto found = std::ranges::find_if(stages, [&](const TrainingStage& each) { return step <= each.end(); });
  return static_cast<size_t>(std::min(found, stages.end() - 1) - stages.begin());
}

bool is_same(double a, double b) { return std::abs(a - b) <= kSame * std::max(std::abs(a), std::abs(b)); }

// The key that gives the schedule of before its length again, if that is all that keeps it; with its rate.
std::string describe_remedy(const RunConfig& before, RunConfig now, int64_t step, int64_t tokens, int64_t next_tokens) {
  const auto stages = training_stages(before);
  const int64_t steps = count_schedule_steps(stages[index_of_stage(stages, step)].config);
  std::string key = "optimizer.schedule_steps";
  if (now.train.stages.empty()) {
    now.optimizer.schedule_steps = steps;
  } else {
    const size_t phase = index_of_stage(training_stages(now), step);
    key = fmt::format("train.stages[{}].schedule_steps", phase);
    now.train.stages[phase].schedule_steps = steps;
  }
  if (now.optimizer.schedule_tokens > 0 ||
      !is_same(planned_learning_rate(now, step, tokens), planned_learning_rate(before, step, tokens)))
    return "set them back to keep the earlier schedule";
  return fmt::format("{} = {} keeps the earlier schedule ({:.3g} at this step)", key, steps,
                     planned_learning_rate(now, step + 1, next_tokens));
}

std::string describe_changes(const RunConfig& before, const RunConfig& now) {
  std::vector<std::string> changes = describe_config_changes(dump_run_config(before, /*with_help=*/false), now);
  std::erase_if(changes, [](const std::string& each) {
    return std::ranges::none_of(std::vector<std::string>{"optimizer.", "train.steps", "train.stages", "train.batch",
                                                         "train.global_batch_size", "data.seq_len"},
                                [&](const std::string& field) { return each.starts_with(field); });
  });
  return join(changes, ", ");
}

}  // namespace

double planned_learning_rate(const RunConfig& run, int64_t step, int64_t tokens) {
  const auto stages = training_stages(run);
  const TrainingStage& stage = stages[index_of_stage(stages, step)];
  return learning_rate(stage.config.optimizer, {step - stage.schedule_begin, tokens}, stage.config.train.steps);
}

std::optional<LrJump> find_lr_jump(const RunConfig& before, const RunConfig& now, int64_t step, int64_t tokens_seen) {
  const auto stages = training_stages(now);
  const RunConfig& next = stages[index_of_stage(stages, step + 1)].config;
  const int64_t next_tokens = tokens_seen + next.train.global_batch_size * next.data.seq_len;
  LrJump jump{planned_learning_rate(before, step, tokens_seen), planned_learning_rate(now, step + 1, next_tokens), ""};
  if (is_same(jump.before, planned_learning_rate(now, step, tokens_seen)) || is_same(jump.before, jump.now))
    return std::nullopt;
  jump.text = fmt::format("the learning rate goes from {:.3g} to {:.3g}, which is no step of its schedule: {}; {}",
                          jump.before, jump.now, describe_changes(before, now),
                          describe_remedy(before, now, step, tokens_seen, next_tokens));
  return jump;
}

}  // namespace athanor::inline run

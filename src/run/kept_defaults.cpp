#include "run/kept_defaults.h"

#include <filesystem>
#include <functional>

#include "base/error.h"
#include "base/log.h"
#include "base/number_types.h"
#include "checkpoint/rotation.h"
#include "config/toml_reader.h"
#include "config/training_stages.h"
#include "record/run_folder.h"

namespace athanor::inline run {
namespace fs = std::filesystem;
namespace {

// Returns RUN/config.toml for RUN/models/step-00000040. It first looks along the path as it is written, since models/
// may be a link to another disk; then along the path that links lead to, since the checkpoint may be a link.
fs::path config_beside(const fs::path& checkpoint) {
  std::error_code unknown;
  const auto beside = [](const fs::path& full) {
    const fs::path folder = full.has_filename() ? full : full.parent_path();  // "step-1/"
    return RunFolder{folder.parent_path().parent_path()}.config();
  };
  const fs::path written = beside(fs::absolute(checkpoint).lexically_normal());
  if (fs::exists(written)) return written;
  return beside(fs::weakly_canonical(fs::absolute(checkpoint), unknown));
}

// An imported model has a configuration and the weights of step 0, and no attempt was made.
bool was_only_imported(const RunFolder& run) {
  const auto checkpoints = list_checkpoints(run.checkpoints());
  return checkpoints.size() == 1 && checkpoints.front().step == 0 && !fs::exists(run.events());
}

// Returns the configuration of the attempt from which this one continues; empty if there is none.
fs::path find_earlier_config(const RunConfig& config) {
  const std::string& how = config.checkpoint.resume;
  const RunFolder own{config.train.run_dir};
  if (how == "never" || was_only_imported(own)) return {};
  if (!list_checkpoints(own.checkpoints()).empty() || !list_checkpoints(own.models()).empty()) return own.config();
  return how == "auto" ? fs::path() : config_beside(how);
}

// Returns the value of `field` in the first rank's earlier configuration; empty if there is none, or none that this
// version understands. Collective.
std::string ask_earlier_config(const RunConfig& config, const Team& team,
                               const std::function<std::string(const RunConfig& before)>& field) {
  return team.from_first([&]() -> std::string {
    const fs::path file = find_earlier_config(config);
    if (file.empty() || !fs::exists(file)) return "";
    try {
      return field(load_run_config(file));
    } catch (const Error& error) {
      log::warn(
          "{}: what it left to defaults is not known; set optimizer.warmup_steps and train.dtype if they are to "
          "stay ({})",
          file.string(), error.what());
      return "";
    }
  });
}

}  // namespace

void keep_warmup(RunConfig& config, const Team& team) {
  if (!config.optimizer.warmup_not_set) return;
  const std::string kept = ask_earlier_config(
      config, team, [](const RunConfig& before) { return std::to_string(before.optimizer.warmup_steps); });
  if (kept.empty()) return;
  const int64_t steps = std::stoll(kept), by_default = config.optimizer.warmup_steps;
  if (steps == by_default || steps > count_schedule_steps(training_stages(config).front().config)) return;
  config.optimizer.warmup_steps = steps;
  log::info("optimizer.warmup_steps stays {}, with which this run began (by its steps now it would be {})", steps,
            by_default);
}

void keep_dtype(RunConfig& config, const Team& team, const std::string& chip) {
  if (!config.train.dtype_was_auto) return;
  std::string& dtype = config.train.dtype;
  const std::string first = team.size > 1 ? team.broadcast(dtype) : dtype;
  const std::string kept = ask_earlier_config(config, team, [](const RunConfig& before) {
    return before.train.dtype_was_auto ? TrainConfig().dtype : before.train.dtype;  // a file without it is an old one
  });
  dtype = kept.empty() ? first : kept;
  const std::string reason =
      chip + (number_type(first) == NumberType::kBFloat16 ? " has instructions for it" : " has none for bfloat16");
  if (dtype == first) log::info("train.dtype is {}: {}", dtype, reason);
  if (dtype != first) log::info("train.dtype stays {}, in which this run began (now it would be {})", dtype, first);
}

void keep_validation_interval(RunConfig& config, const Team& team) {
  const std::string kept = ask_earlier_config(config, team, [](const RunConfig& before) {
    const CountOrAuto& interval = before.train.validation_interval;
    return std::to_string((interval.is_auto ? TrainConfig().validation_interval : interval).count);
  });
  if (kept.empty()) return;
  const int64_t by_default = config.train.validation_interval.count;
  config.train.validation_interval = std::stoll(kept);
  if (config.train.validation_interval.count != by_default)
    log::info("train.validation_interval stays {}, with which this run began (by its data it would be {})", kept,
              by_default);
}

}  // namespace athanor::inline run

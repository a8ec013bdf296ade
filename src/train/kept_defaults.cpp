#include "train/kept_warmup.h"

#include <filesystem>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/rotation.h"
#include "config/toml_reader.h"
#include "config/training_stages.h"
#include "train/run_folder.h"

namespace athanor {
namespace fs = std::filesystem;
namespace {

// The configuration of the attempt that this one goes on from; empty if there is none.
fs::path find_earlier_config(const RunConfig& config) {
  const std::string& how = config.checkpoint.resume;
  const RunFolder own{config.train.run_dir};
  if (how == "never") return {};
  if (!list_checkpoints(own.checkpoints()).empty() || !list_checkpoints(own.models()).empty()) return own.config();
  return how == "auto" ? fs::path() : fs::absolute(how).lexically_normal().parent_path().parent_path() / "config.toml";
}

}  // namespace

void keep_warmup(RunConfig& config, const Team& team) {
  if (!config.optimizer.warmup_not_set) return;
  std::string kept;
  team.on_first([&] {
    const fs::path file = find_earlier_config(config);
    if (file.empty() || !fs::exists(file)) return;
    try {
      kept = std::to_string(load_run_config(file).optimizer.warmup_steps);
    } catch (const ConfigError&) {  // of another version: what is not understood is not kept
    }
  });
  if (team.size > 1) kept = team.hear_first(kept);
  if (kept.empty()) return;
  const int64_t steps = std::stoll(kept), by_default = config.optimizer.warmup_steps;
  if (steps == by_default || steps > training_stages(config).front().config.train.steps) return;
  config.optimizer.warmup_steps = steps;
  log::info("optimizer.warmup_steps stays {}, with which this run began (by its steps now it would be {})", steps,
            by_default);
}

}  // namespace athanor

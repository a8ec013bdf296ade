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

// RUN/config.toml of RUN/models/step-00000040: by the path as it is written, where models/ may be a link to another
// disk; else by where it leads, where the checkpoint may be one.
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

// The configuration of the attempt that this one goes on from; empty if there is none.
fs::path find_earlier_config(const RunConfig& config) {
  const std::string& how = config.checkpoint.resume;
  const RunFolder own{config.train.run_dir};
  if (how == "never") return {};
  if (!list_checkpoints(own.checkpoints()).empty() || !list_checkpoints(own.models()).empty()) return own.config();
  return how == "auto" ? fs::path() : config_beside(how);
}

// As text; empty where there is none, or none that this version understands.
std::string earlier_warmup(const RunConfig& config) {
  const fs::path file = find_earlier_config(config);
  if (file.empty() || !fs::exists(file)) return {};
  try {
    return std::to_string(load_run_config(file).optimizer.warmup_steps);
  } catch (const Error& error) {
    log::warn("{}: the warm-up it had is not known; set optimizer.warmup_steps if it is to stay ({})", file.string(),
              error.what());
    return {};
  }
}

}  // namespace

void keep_warmup(RunConfig& config, const Team& team) {
  if (!config.optimizer.warmup_not_set) return;
  std::string kept;
  team.on_first([&] { kept = earlier_warmup(config); });
  if (team.size > 1) kept = team.hear_first(kept);
  if (kept.empty()) return;
  const int64_t steps = std::stoll(kept), by_default = config.optimizer.warmup_steps;
  if (steps == by_default || steps > training_stages(config).front().config.train.steps) return;
  config.optimizer.warmup_steps = steps;
  log::info("optimizer.warmup_steps stays {}, with which this run began (by its steps now it would be {})", steps,
            by_default);
}

}  // namespace athanor

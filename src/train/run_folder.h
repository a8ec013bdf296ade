#pragma once
// A run is a folder.
//
//   config.toml       the resolved configuration        metrics.jsonl   a line for each step
//   tokenizer.json    of the data it reads, or .model    tensorboard/    the same as events
//   checkpoints/      full, the newest two               log/            what the terminal saw
//   models/           model-only, for transformers     dispatch.json   which moe.dispatch = "auto" kept

#include <filesystem>

#include "checkpoint/hf_tokenizer.h"
#include "config/run_config.h"

namespace athanor {

struct RunFolder {
  std::filesystem::path root;

  std::filesystem::path config() const { return root / "config.toml"; }
  /// Empty if it has none.
  std::filesystem::path tokenizer() const { return find_tokenizer_file(root); }
  std::filesystem::path checkpoints() const { return root / "checkpoints"; }
  std::filesystem::path models() const { return root / "models"; }
  std::filesystem::path dispatch() const { return root / "dispatch.json"; }
  std::filesystem::path log() const { return root / "log"; }
  std::filesystem::path log_file() const { return log() / "train.log"; }
};

/// Makes the folder and what a run needs in it: resolved configuration, tokenizer, log.
/// @param tokenizer  the file that the data was prepared with.
/// @throws ConfigError if checkpoint.resume is "never" and it holds a run already.
RunFolder open_run_folder(const RunConfig& config, const std::filesystem::path& tokenizer);

}  // namespace athanor

#pragma once
// A run is a folder (docs/run-folder.md).
//
//   config.toml       the resolved configuration        configs/         earlier ones, by the attempt they ended with
//   tokenizer.json    of the data it reads, or .model    metrics.jsonl    a line for each step
//   checkpoints/      full, the newest two               tensorboard/     the same as events
//   models/           model-only, for transformers     events.jsonl     what happened (run_history.h)
//   log/              what the terminal saw,             dispatch.json    which moe.dispatch = "auto" kept
//                     last-words.json                    matmul.json      how it multiplies matrices
//                                                        lock             while a process trains in it

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/hf_tokenizer.h"
#include "config/run_config.h"
#include "train/beginning.h"

namespace athanor {

struct RunFolder {
  std::filesystem::path root;

  std::filesystem::path config() const { return root / "config.toml"; }
  std::filesystem::path configs() const { return root / "configs"; }
  /// Empty if it has none.
  std::filesystem::path tokenizer() const { return find_tokenizer_file(root); }
  std::filesystem::path checkpoints() const { return root / "checkpoints"; }
  std::filesystem::path models() const { return root / "models"; }
  std::filesystem::path metrics() const { return root / "metrics.jsonl"; }
  std::filesystem::path events() const { return root / "events.jsonl"; }
  std::filesystem::path dispatch() const { return root / "dispatch.json"; }
  std::filesystem::path matmul() const { return root / "matmul.json"; }
  std::filesystem::path log() const { return root / "log"; }
  std::filesystem::path log_file() const { return log() / "train.log"; }
  std::filesystem::path last_words() const { return log() / "last-words.json"; }
};

/// What a start writes into its folder.
struct FolderOpening {
  const RunConfig& config;
  const Beginning& begin;
  int64_t step;                     ///< that it goes on behind
  std::filesystem::path tokenizer;  ///< the file that the data was prepared with
  std::string dispatch_record;      ///< for dispatch.json; empty: it stays
  std::string matmul_record = {};   ///< for matmul.json, likewise
};

struct OpenedFolder {
  std::vector<std::string> changes;    ///< of the configuration since the attempt before, for people
  std::vector<std::string> abandoned;  ///< where what was moved aside lies now
};

/// The first thing that changes anything in a run's folder, to be called when everything that may refuse the run has
/// passed: makes the folder and what a run needs in it, ends what killed processes left, moves aside what a run that
/// goes back abandons, keeps the configuration of the attempt before, and opens the log. A process that is killed on
/// the way leaves a folder that begins as this one did. @throws IoError.
OpenedFolder open_run_folder(const FolderOpening& opening);

}  // namespace athanor

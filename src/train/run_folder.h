#pragma once
// The folder of a training run: its files (docs/run-folder.md) and how a start opens it.
//
//   config.toml      the resolved configuration       configs/        earlier ones, named after their last attempt
//   tokenizer.json   of the data; or tokenizer.model  metrics.jsonl   one line for each step
//   checkpoints/     full, the newest two             tensorboard/    the same metrics as events
//   models/          model-only, for transformers     events.jsonl    what happened (run_history.h)
//   log/             the terminal's output, logs of   dispatch.json   the choice that moe.dispatch = "auto" made
//                    ranks, last-words.json           matmul.json     how the run multiplies matrices
//   board/           what each node's ranks do        probes.jsonl    what the ranks and nodes measured (probe.h)
//   where.json       where local checkpoints lie      lock            held while a process trains in the folder
//   evals/           scores of tasks, by step

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "board/place.h"
#include "checkpoint/hf_tokenizer.h"
#include "checkpoint/verified_load.h"
#include "config/run_config.h"
#include "train/beginning.h"

namespace athanor {

struct RunFolder {
  std::filesystem::path root;

  std::filesystem::path config() const { return root / "config.toml"; }
  std::filesystem::path configs() const { return root / "configs"; }
  /// Returns the tokenizer's file; empty if the folder has none.
  std::filesystem::path tokenizer() const { return find_tokenizer_file(root); }
  std::filesystem::path checkpoints() const { return root / "checkpoints"; }
  std::filesystem::path models() const { return root / "models"; }
  std::filesystem::path metrics() const { return root / "metrics.jsonl"; }
  std::filesystem::path events() const { return root / "events.jsonl"; }
  std::filesystem::path dispatch() const { return root / "dispatch.json"; }
  std::filesystem::path matmul() const { return root / "matmul.json"; }
  std::filesystem::path evals() const { return root / "evals"; }
  std::filesystem::path probes() const { return root / "probes.jsonl"; }
  /// Its presence asks a run for a probe.
  std::filesystem::path probe_request() const { return board::probe_request_of(root); }
  std::filesystem::path log() const { return root / "log"; }
  std::filesystem::path log_file() const { return log() / "train.log"; }
  /// Returns the file of a rank other than the first, in the folder of its host; most ranks have none (base/log.h).
  std::filesystem::path rank_log(int rank, const std::string& host) const;
  std::filesystem::path last_words() const { return log() / "last-words.json"; }
};

/// What a start of a run writes into the run's folder.
struct FolderOpening {
  const RunConfig& config;  ///< resolved
  const Beginning& begin;
  int64_t step;                             ///< the step after which the run continues
  std::filesystem::path tokenizer;          ///< the tokenizer file that the data was prepared with
  std::string dispatch_record;              ///< text for dispatch.json; empty: the file stays as it is
  std::string matmul_record = {};           ///< text for matmul.json; empty: the file stays as it is
  std::optional<PutAside> not_finite = {};  ///< a checkpoint of the run, to be put aside
};

struct OpenedFolder {
  std::vector<std::string> changes;    ///< differences from the configuration of the previous attempt, for people
  std::vector<std::string> abandoned;  ///< the new paths of what was moved aside
  std::string not_finite;              ///< the new path of the checkpoint that was put aside; empty: none was
};

/// Opens a run's folder for a start; only the first rank calls it, after every check that may refuse the run: nothing
/// in the folder changes earlier. It makes the folder and what a run needs in it, cleans up what killed processes left,
/// moves aside what a run that goes back abandons, puts a checkpoint that is not finite aside (rotation.h), keeps the
/// configuration of the previous attempt, and opens the log. If the process is killed on the way, the next start plans
/// the same beginning from the folder.
/// @throws IoError.
OpenedFolder open_run_folder(const FolderOpening& opening);

}  // namespace athanor

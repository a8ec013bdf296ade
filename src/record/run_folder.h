#pragma once
// The files in the folder of a training run (docs/run-folder.md). A start opens it with run/open_folder.h.
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
#include <string>

namespace athanor::inline record {

struct RunFolder {
  std::filesystem::path root;

  std::filesystem::path config() const { return root / "config.toml"; }
  std::filesystem::path configs() const { return root / "configs"; }
  std::filesystem::path checkpoints() const { return root / "checkpoints"; }
  std::filesystem::path models() const { return root / "models"; }
  std::filesystem::path metrics() const { return root / "metrics.jsonl"; }
  std::filesystem::path events() const { return root / "events.jsonl"; }
  std::filesystem::path dispatch() const { return root / "dispatch.json"; }
  std::filesystem::path matmul() const { return root / "matmul.json"; }
  std::filesystem::path evals() const { return root / "evals"; }
  std::filesystem::path probes() const { return root / "probes.jsonl"; }
  /// Its presence asks a run for a probe.
  std::filesystem::path probe_request() const { return root / "probe.request"; }
  std::filesystem::path log() const { return root / "log"; }
  std::filesystem::path log_file() const { return log() / "train.log"; }
  /// Returns the file of a rank other than the first, in the folder of its host; most ranks have none (base/log.h).
  std::filesystem::path rank_log(int rank, const std::string& host) const;
  std::filesystem::path last_words() const { return log() / "last-words.json"; }
};

}  // namespace athanor::inline record

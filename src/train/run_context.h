#pragma once
// What a process is doing in its run. The message of a failure contains it in addition to the rank, and it determines
// where the process may write its last words (last_words.h).

#include <atomic>
#include <cstdint>
#include <filesystem>

#include "base/log.h"
#include "record/last_words.h"
#include "train/run_phases.h"

namespace athanor::inline train {

struct RunContext {
  /// number of the present update in the run, from 1; 0 before the first of this attempt
  std::atomic<int64_t> step{0};
  std::atomic<const char*> phase{"start"};  ///< start, data, step, validate, evaluate or save
  /// The folder of a run that has begun: every check of its start has passed and its folder may change. The thread that
  /// trains sets it, and this is also the thread that fails.
  std::filesystem::path run_dir;
  /// the log file of a rank other than the first, in that folder; it reads `step`
  log::RankFile rank_log;
  int64_t attempt = 0;              ///< number of this start of the run, from 1; 0 until run_dir is set
  int64_t batches_passed_over = 0;  ///< by this process (watch/refused_steps.h)

  RunPhases phases;

  void set_step(int64_t next) {
    step = next;
    phases.board.set_step(next);
  }
  void enter(const char* next, board::Phase shown) {
    phase = next;
    phases.enter(shown);
  }
  bool in_run() const { return !run_dir.empty(); }
  RunMoment moment() const { return {run_dir, attempt, step, phase}; }
};

}  // namespace athanor::inline train

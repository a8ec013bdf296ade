#pragma once
// Looks at the progress of a command: at the board of a training, else at its output (launch/watchdog.h has the rules).

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "launch/output_tee.h"
#include "launch/watchdog.h"

namespace athanor::launch {

class ProgressWatch {
 public:
  /// @param run_dir  of a training; nothing for another command. @param attempt_before  RunRecords::attempt.
  /// @param timeout_s  0: nothing is ever overdue. @param hosts  those of the command.
  /// @param own_host  the name of this machine.
  ProgressWatch(std::optional<std::filesystem::path> run_dir, int64_t attempt_before, double timeout_s, JobHosts hosts,
                std::string own_host);

  /// Returns whether there was no progress for too long. Call it often: it looks at the board twenty times in the
  /// timeout, and every ten seconds at most.
  bool is_overdue(const OutputTee& tee);

  /// Seconds since the newest progress.
  double waited_s() const;
  /// How many of the seconds without progress are allowed now: "--timeout", "3 times --timeout while it starts".
  std::string allowed() const;
  /// hosts_at_fault and silent_hosts (launch/watchdog.h), as the board is now; none for a command without a board.
  std::vector<std::string> at_fault() const;
  std::vector<std::string> silent() const;

 private:
  std::optional<board::RunStatus> status() const;
  void look(const OutputTee& tee);
  bool will_tell_more() const;
  double now_s() const;

  std::optional<std::filesystem::path> run_dir_;
  int64_t attempt_before_, first_step_ = 0;
  double timeout_s_;
  JobHosts hosts_;
  std::string own_host_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double next_look_s_ = 0;
  Watchdog watchdog_;
};

/// Runs `athanor status RUN --stacks`, which writes what the ranks do into `file`; it is killed after `limit`.
void write_board_and_stacks(const std::string& own_program, const std::filesystem::path& run_dir,
                            const std::filesystem::path& file, std::chrono::seconds limit);

}  // namespace athanor::launch

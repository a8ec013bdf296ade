#pragma once
// Whether a command makes progress, and when one that makes none is ended: how long each part of a run may take.
//
// Progress is a change of what is shown: of a training the steps and phases of its ranks on the board, of another
// command its output. docs/launch.md has the allowances as a table.

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "board/run_status.h"
#include "launch/host_names.h"
#include "launch/output_tee.h"

namespace athanor::launch {

/// What a command is doing, as far as it decides how long that may take.
enum class Stage {
  kLoad,       ///< it starts: programs, data, checkpoints and their verification, until the first step begins
  kFirstStep,  ///< the first of an attempt: buffers, connections and measurements come with it
  kSave,       ///< saving and validating
  kStep,       ///< everything else
};

/// Returns the seconds without progress that a stage may take. @param timeout_s  those of a step.
constexpr double allowance_s(Stage stage, double timeout_s) {
  switch (stage) {
    case Stage::kLoad: return 3 * timeout_s;
    case Stage::kFirstStep: return 2 * timeout_s;
    case Stage::kSave: return 3 * timeout_s;
    case Stage::kStep: return timeout_s;
  }
  return timeout_s;
}

/// What the board shows of a training at a moment.
struct Sight {
  Stage stage = Stage::kLoad;
  std::string state;  ///< progress is a change of this text
  int64_t step = 0;   ///< the newest that a rank is in; 0: none
};
/// @param attempt_before  the newest attempt before this start, as the run counts them: what the board still shows of
///                        it is not looked at.
/// @param first_step  of this attempt; 0: not known yet.
Sight sight_of(const board::RunStatus& status, int64_t attempt_before, int64_t first_step);

/// Times are seconds of any clock that is never set back.
class Watchdog {
 public:
  /// @param timeout_s  0: nothing is ever overdue.
  Watchdog(double timeout_s, double now_s) : timeout_s_(timeout_s), progress_s_(now_s) {}

  /// Tells what is seen now.
  void see(Stage stage, const std::string& state, double now_s) {
    if (state != state_ || stage != stage_) progress_s_ = now_s;
    stage_ = stage, state_ = state;
  }
  bool is_overdue(double now_s) const {
    return timeout_s_ > 0 && now_s - progress_s_ > allowance_s(stage_, timeout_s_);
  }
  double waited_s(double now_s) const { return now_s - progress_s_; }
  Stage stage() const { return stage_; }

 private:
  double timeout_s_, progress_s_;
  Stage stage_ = Stage::kLoad;
  std::string state_;
};

/// Returns the nodes of the ranks that the others wait for; none if these are most of the ranks, as then nothing tells
/// which of them is at fault.
std::vector<std::string> late_nodes(const board::RunStatus& status);

/// Returns the hosts that tell nothing of the present: no report of the attempt has ever come from them, though ranks
/// are missing in those of the others, or the newest one is late. All of them if the board shows nothing.
std::vector<std::string> silent_hosts(const board::RunStatus& status, const JobHosts& hosts);

/// Returns the hosts that are at fault if the job stands still: those of late_nodes, and all silent ones unless a host
/// that reports is among the former, which explains why the others wait. Silent hosts are lost or frozen only if
/// another host than `own` reports, as else the reports of others may not reach the place where this process looks.
/// @param own  the name of this machine.
std::vector<std::string> hosts_at_fault(const board::RunStatus& status, const JobHosts& hosts, std::string_view own);

/// Looks at the board of a training, else at the output of a command.
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
  /// hosts_at_fault and silent_hosts, as the board is now; none for a command without a board.
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

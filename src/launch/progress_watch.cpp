#include "launch/progress_watch.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/wall_clock.h"
#include "launch/process.h"

namespace athanor::launch {
namespace fs = std::filesystem;

ProgressWatch::ProgressWatch(std::optional<fs::path> run_dir, int64_t attempt_before, double timeout_s, JobHosts hosts)
    : run_dir_(std::move(run_dir)), attempt_before_(attempt_before), timeout_s_(timeout_s), hosts_(std::move(hosts)),
      watchdog_(timeout_s, 0) {}

double ProgressWatch::now_s() const { return seconds_since(start_); }

double ProgressWatch::waited_s() const { return watchdog_.waited_s(now_s()); }

std::string ProgressWatch::allowed() const {
  const Stage stage = watchdog_.stage();
  if (stage == Stage::kStep) return "--timeout";
  const char* doing = stage == Stage::kLoad ? "it starts" : stage == Stage::kSave ? "it saves" : "its first step lasts";
  return fmt::format("{:.0f} times --timeout while {}", allowance_s(stage, 1), doing);
}

std::optional<board::RunStatus> ProgressWatch::status() const {
  if (!run_dir_) return std::nullopt;
  try {
    return board::status_of(board::collect_reports(*run_dir_), std::nullopt, unix_time_s());
  } catch (const Error&) {
    return std::nullopt;  // ATHANOR_BOARD is wrong: the ranks refuse it
  }
}

void ProgressWatch::look(const OutputTee& tee) {
  const auto output = tee.last_output();
  const std::string from_output =
      output > start_ ? fmt::format("output {}", output.time_since_epoch().count()) : std::string();
  if (!run_dir_) return watchdog_.see(from_output.empty() ? Stage::kLoad : Stage::kStep, from_output, now_s());
  const auto status = this->status();
  const Sight sight = status ? sight_of(*status, attempt_before_, first_step_) : Sight();
  if (first_step_ == 0 && sight.stage == Stage::kFirstStep) first_step_ = sight.step;
  watchdog_.see(sight.stage, sight.state.empty() ? from_output : sight.state, now_s());
}

bool ProgressWatch::is_overdue(const OutputTee& tee) {
  if (timeout_s_ <= 0 || now_s() < next_look_s_) return false;
  look(tee);
  next_look_s_ = now_s() + std::clamp(timeout_s_ / 20, 0.05, 10.0);
  return watchdog_.is_overdue(now_s()) && !will_tell_more();
}

// A node that no longer reports is known to be late after three intervals of its reports (board/run_status.h): a
// shorter timeout waits for that, so that the node can be named.
bool ProgressWatch::will_tell_more() const {
  const auto status = this->status();
  if (!status || status->attempt <= attempt_before_ || !late_nodes(*status).empty()) return false;
  const double interval_s = status->report_interval_s;
  if (!silent_hosts(*status, hosts_).empty()) return waited_s() < 2 * interval_s;  // its first report may be on the way
  return status->oldest_report_s > 1.5 * interval_s && status->oldest_report_s < 4 * interval_s;
}

std::vector<std::string> ProgressWatch::late() const {
  const auto status = this->status();
  if (!status || status->attempt <= attempt_before_) return {};
  std::vector<std::string> nodes = late_nodes(*status);
  return nodes.empty() ? silent_hosts(*status, hosts_) : nodes;
}

void write_board_and_stacks(const std::string& own_program, const fs::path& run_dir, const fs::path& file,
                            std::chrono::seconds limit) {
  try {
    run_into_file({{own_program, "status", run_dir.string(), "--stacks"}}, file, limit);
  } catch (const Error& error) {
    log::warn("the board is not kept: {}", error.what());
  }
}

}  // namespace athanor::launch

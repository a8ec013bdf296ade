#include "launch/progress_watch.h"

#include <fmt/core.h>

#include <algorithm>
#include <initializer_list>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "base/wall_clock.h"
#include "launch/process.h"

namespace athanor::launch {
namespace {

// Whether a rank is in one of the phases. What a node that is lost showed last is no phase of the job.
bool any_is_in(const board::RunStatus& status, std::initializer_list<std::string_view> phases) {
  return std::ranges::any_of(status.ranks, [&](const board::SeenRank& seen) {
    return seen.silent_s == 0 && seen.rank.is_there() && std::ranges::find(phases, seen.rank.phase) != phases.end();
  });
}

}  // namespace

Sight sight_of(const board::RunStatus& status, int64_t attempt_before, int64_t first_step) {
  if (status.ranks.empty() || (status.attempt != 0 && status.attempt <= attempt_before)) return {};
  Sight sight;
  sight.state = fmt::format("{} {} {}", status.attempt, status.num_gone, status.num_ended);
  for (const board::PhaseCount& phase : status.phases) {
    sight.state += fmt::format(" {} {} {} {}", phase.phase, phase.num_ranks, phase.first_step, phase.last_step);
    sight.step = std::max(sight.step, phase.last_step);
  }
  if (status.attempt == 0 || any_is_in(status, {"start"}))
    sight.stage = Stage::kLoad;
  else if (any_is_in(status, {"save", "validate", "evaluate"}))
    sight.stage = Stage::kSave;
  else
    sight.stage = first_step == 0 || sight.step <= first_step ? Stage::kFirstStep : Stage::kStep;
  return sight;
}

std::vector<std::string> late_nodes(const board::RunStatus& status) {
  std::vector<std::string> nodes;
  if (2 * status.behind.num_behind > std::ssize(status.ranks)) return nodes;
  for (const board::BehindRank& behind : status.behind.ranks) {
    const std::string& node = status.ranks[behind.index].node;
    if (std::ranges::find(nodes, node) == nodes.end()) nodes.push_back(node);
  }
  return nodes;
}

std::vector<std::string> silent_hosts(const board::RunStatus& status, const JobHosts& hosts) {
  std::set<std::string> silent, reporting;
  for (const board::LateNode& late : status.late) silent.insert(hosts.find(late.node).value_or(late.node));
  for (const std::string& node : status.nodes) {
    const std::string host = hosts.find(node).value_or(node);
    if (!silent.contains(host)) reporting.insert(host);
  }
  const bool misses_ranks = std::ssize(status.ranks) < status.job_ranks || status.ranks.empty();
  std::vector<std::string> found;
  for (const std::string& host : hosts.names())
    if (silent.contains(host) || (misses_ranks && !reporting.contains(host))) found.push_back(host);
  return found;
}

std::vector<std::string> hosts_at_fault(const board::RunStatus& status, const JobHosts& hosts, std::string_view own) {
  std::vector<std::string> at_fault;
  for (const std::string& node : late_nodes(status)) at_fault.push_back(hosts.find(node).value_or(node));
  const std::vector<std::string> silent = silent_hosts(status, hosts);
  const auto is_silent = [&](const std::string& host) { return std::ranges::find(silent, host) != silent.end(); };
  const auto own_host = hosts.find(own);
  const bool others_report =
      std::ranges::any_of(hosts.names(), [&](const std::string& host) { return host != own_host && !is_silent(host); });
  if (!others_report || !std::ranges::all_of(at_fault, is_silent)) return at_fault;
  for (const std::string& host : silent)
    if (std::ranges::find(at_fault, host) == at_fault.end()) at_fault.push_back(host);
  return at_fault;
}

namespace fs = std::filesystem;

ProgressWatch::ProgressWatch(std::optional<fs::path> run_dir, int64_t attempt_before, double timeout_s, JobHosts hosts,
                             std::string own_host)
    : run_dir_(std::move(run_dir)), attempt_before_(attempt_before), timeout_s_(timeout_s), hosts_(std::move(hosts)),
      own_host_(std::move(own_host)), watchdog_(timeout_s, 0) {}

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
// shorter timeout waits for that, so that all nodes that were lost at once are named together.
bool ProgressWatch::will_tell_more() const {
  const auto status = this->status();
  if (!status || status->attempt <= attempt_before_) return false;
  const double interval_s = status->report_interval_s;
  if (waited_s() > allowance_s(watchdog_.stage(), timeout_s_) + 4 * interval_s) return false;
  if (std::ssize(status->ranks) < status->job_ranks && waited_s() < 2 * interval_s)
    return true;  // a first report may be on the way
  return std::ranges::any_of(status->ranks, [&, now = unix_time_s()](const board::SeenRank& seen) {
    return seen.rank.is_there() && seen.silent_s == 0 && now - seen.seen > 1.5 * interval_s;
  });
}

std::vector<std::string> ProgressWatch::at_fault() const {
  const auto status = this->status();
  return status && status->attempt > attempt_before_ ? hosts_at_fault(*status, hosts_, own_host_)
                                                     : std::vector<std::string>();
}

std::vector<std::string> ProgressWatch::silent() const {
  const auto status = this->status();
  return status && status->attempt > attempt_before_ ? silent_hosts(*status, hosts_) : std::vector<std::string>();
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

#include "board/run_status.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "base/process.h"
#include "board/phase.h"
#include "board/place.h"
#include "board/report_socket.h"
#include "record/events.h"
#include "record/run_folder.h"

namespace athanor::board {
namespace fs = std::filesystem;
namespace {

constexpr double kLateReports = 3;   // intervals after which a report is late: two others should have come
constexpr size_t kReaders = 16;      // to open a file of a parallel file system takes a millisecond or two of waiting
constexpr size_t kFilesForOne = 32;  // files for which it is not worth to start another thread

std::optional<NodeReport> report_of_this_node(const fs::path& run_dir) {
  for (const Place& place : places_of_this_node(run_dir)) {
    const auto text = ask_collector(place.socket);
    try {
      if (text) return parse_node_report(*text, place.socket.string());
    } catch (const DataError&) {
      // another version wrote it: the file may be readable
    }
  }
  return {};
}

std::optional<NodeReport> report_in(const fs::path& file) {
  try {
    NodeReport report = parse_node_report(read_file(file), file.string());
    report.from_file = true;
    return report;
  } catch (const Error&) {
    return {};  // removed meanwhile, or of another version
  }
}

std::vector<std::optional<NodeReport>> reports_in(const std::vector<fs::path>& files) {
  std::vector<std::optional<NodeReport>> reports(files.size());
  std::atomic<size_t> next = 0;
  const auto read = [&] {
    for (size_t i = next++; i < files.size(); i = next++) reports[i] = report_in(files[i]);
  };
  std::vector<std::jthread> others;
  for (size_t more = 1; more < std::min(kReaders, files.size() / kFilesForOne); ++more) others.emplace_back(read);
  read();
  others.clear();  // waits for them
  return reports;
}

// The newest attempt is the one to show. While a start still makes its checks, its ranks have no attempt: they are
// shown if no rank of an earlier attempt is there any more.
int64_t attempt_to_show(const std::vector<NodeReport>& reports) {
  int64_t newest = 0, newest_there = 0;
  bool starts = false;
  for (const NodeReport& node : reports)
    for (const RankReport& rank : node.ranks) {
      newest = std::max(newest, rank.attempt);
      if (rank.is_there()) newest_there = std::max(newest_there, rank.attempt);
      starts = starts || (rank.is_there() && rank.attempt == 0);
    }
  return starts && newest_there == 0 ? 0 : newest;
}

void count(RunStatus& status, const RankReport& rank) {
  if (rank.state == "running") ++status.num_running;
  if (rank.state == "stopped") ++status.num_stopped;
  if (rank.state == "gone") ++status.num_gone;
  if (rank.state == "ended") ++status.num_ended;
  if (!rank.is_there()) return;
  auto phase = std::ranges::find(status.phases, rank.phase, &PhaseCount::phase);
  if (phase == status.phases.end()) phase = status.phases.insert(phase, {rank.phase, 0, rank.step, rank.step});
  ++phase->num_ranks;
  phase->first_step = std::min(phase->first_step, rank.step);
  phase->last_step = std::max(phase->last_step, rank.step);
}

// What is known of a process that has gone holds until now, however old the last report of its node is.
SeenRank seen_at(double now, const RankReport& rank, const NodeReport& node, double silent_s) {
  SeenRank seen{rank, node.node, node.written, silent_s};
  if (rank.state != "gone") return seen;
  const double since_s = std::max(0.0, now - node.written);
  seen.seen += since_s;
  seen.rank.phase_s += since_s;
  seen.rank.change_s += since_s;
  if (seen.rank.gone_s) *seen.rank.gone_s += since_s;
  return seen;
}

size_t place_of_phase(const PhaseCount& phase) {
  return static_cast<size_t>(std::ranges::find(kPhaseNames, phase.phase) - kPhaseNames.begin());
}

}  // namespace

std::vector<NodeReport> collect_reports(const fs::path& run_dir) {
  std::vector<NodeReport> reports;
  std::optional<NodeReport> own = report_of_this_node(run_dir);
  std::vector<fs::path> files;
  for (const std::string& name : names_in(reports_of(run_dir))) {
    if (name.starts_with('.') || !name.ends_with(".json") || (own && name == own->node + ".json")) continue;
    files.push_back(reports_of(run_dir) / name);
  }
  for (auto& report : reports_in(files))
    if (report) reports.push_back(std::move(*report));
  if (own) reports.push_back(std::move(*own));
  std::ranges::sort(reports, {}, &NodeReport::node);
  return reports;
}

RunStatus status_of(const std::vector<NodeReport>& reports, std::optional<RunEnd> end, double now) {
  RunStatus status;
  status.attempt = attempt_to_show(reports);
  double last_change = 0;
  const bool starts = status.attempt == 0;
  for (const NodeReport& node : reports) {
    const double age_s = now - node.written;
    LateNode late{node.node, age_s, {}};
    bool is_shown = false;
    for (const RankReport& rank : node.ranks) {
      if (rank.attempt != status.attempt || (starts && !rank.is_there())) continue;
      is_shown = true;
      const bool is_silent = rank.is_there() && age_s > kLateReports * node.interval_s;
      if (is_silent) late.ranks.push_back(rank.rank);
      status.ranks.push_back(seen_at(now, rank, node, is_silent ? age_s : 0));
      last_change = std::max(last_change, node.written - rank.change_s);
      count(status, rank);
    }
    if (!late.ranks.empty()) status.late.push_back(std::move(late));
    if (!is_shown) continue;
    status.nodes.push_back(node.node);
    status.oldest_report_s = std::max(status.oldest_report_s, age_s);
    status.report_interval_s = std::max(status.report_interval_s, node.interval_s);
    status.job_ranks = std::max(status.job_ranks, node.job_ranks);
  }
  status.last_change_s = status.ranks.empty() ? 0 : std::max(0.0, now - last_change);
  std::ranges::sort(status.phases, {}, place_of_phase);
  std::ranges::stable_sort(status.ranks, {}, [](const SeenRank& seen) { return seen.rank.rank; });
  if (end && end->attempt >= status.attempt && !(status.attempt == 0 && status.num_running > 0)) {
    status.end = end;
    status.attempt = end->attempt;
  }
  if (!status.end) status.behind = find_behind(status.ranks);
  return status;
}

std::optional<RunEnd> end_of_run(const fs::path& run_dir) {
  std::optional<RunEnd> end;
  for_each_event(RunFolder{run_dir}.events(), 0, [&](const Event& event) {
    if (event.is_start()) end.reset();
    if (event.kind != "end") return;
    end = RunEnd{event.attempt,       event.step,         static_cast<int>(event.integer("exit_code")),
                 event.text("cause"), event.text("text"), {},
                 event.time};
    if (event.integer("rank", -1) >= 0) end->rank = static_cast<int>(event.integer("rank"));
  });
  return end;
}

}  // namespace athanor::board

#pragma once
// The state of a run, from the reports of its nodes and its history: what `athanor status` shows.

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "board/behind.h"

namespace athanor::board {

/// Returns the reports of all nodes: that of this node from its collector, if it has one, the others from the files in
/// the run's folder. Files that cannot be read are left out. @throws ConfigError if ATHANOR_BOARD is wrong.
std::vector<NodeReport> collect_reports(const std::filesystem::path& run_dir);

/// How the last attempt of a run ended, from events.jsonl.
struct RunEnd {
  int64_t attempt = 0, step = 0;
  int exit_code = 0;
  std::string cause, text;  ///< the text of a failure
  std::optional<int> rank;  ///< that failed
  double time = 0;
};

struct PhaseCount {
  std::string phase;
  int64_t num_ranks = 0, first_step = 0, last_step = 0;
};

/// A node that should have reported again, as some of its ranks were there when it did last.
struct LateNode {
  std::string node;
  double report_s = 0;  ///< age of its last report
  std::vector<int> ranks;
};

struct RunStatus {
  int64_t attempt = 0;  ///< 0: the checks of a start are not over
  int job_ranks = 0;
  std::vector<SeenRank> ranks;     ///< those with the newest attempt
  std::vector<std::string> nodes;  ///< that these are on
  std::vector<PhaseCount> phases;  ///< ranks that run or are stopped, in the order of phases
  int64_t num_running = 0, num_stopped = 0, num_gone = 0, num_ended = 0;
  double last_change_s = 0;      ///< seconds since any rank changed
  double oldest_report_s = 0;    ///< age of the oldest report
  double report_interval_s = 0;  ///< seconds between two reports of a node, the longest of them
  std::vector<LateNode> late;
  std::optional<RunEnd> end;  ///< the end of this attempt or of a later one
  Behind behind;

  bool has_ended() const { return end.has_value() || (num_running == 0 && num_stopped == 0); }
};

/// @param now  seconds since 1970.
RunStatus status_of(const std::vector<NodeReport>& reports, std::optional<RunEnd> end, double now);

/// Returns the end of the last attempt in the run's history; nothing if that attempt has no end, or has no history.
/// @throws IoError.
std::optional<RunEnd> end_of_run(const std::filesystem::path& run_dir);

/// Returns the lines for people, and the same as JSON (docs/board.md).
std::string status_text(const std::string& run, const RunStatus& status);
nlohmann::ordered_json status_json(const std::string& run, const RunStatus& status);

}  // namespace athanor::board

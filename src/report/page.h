#pragma once
// The report of runs: one page of HTML that needs nothing else, and the figures on it as files.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "report/run_record.h"

namespace athanor::inline report {

/// More runs are refused: their colours and columns could not be distinguished.
inline constexpr size_t kMostRuns = 16;

struct ReportRequest {
  std::vector<std::string> runs;         ///< run folders, or files of metrics; one that is named twice counts once
  std::map<std::string, double> chance;  ///< the scores of guessing, of tasks whose results do not tell
  std::string live_version = {};         ///< version_of_runs(), of a page that a server renews; else ""
};

/// Reads the runs. @throws ConfigError if there are more than kMostRuns, or one is no run; IoError.
std::vector<RunRecord> read_runs(const ReportRequest& request);

/// Returns a short text that changes when the files of the runs do.
std::string version_of_runs(const ReportRequest& request);

/// Returns the page. Every text of a run is escaped; the only scripts are its own.
/// @param made  when and by what it was made, for its foot.
std::string report_page(const std::vector<RunRecord>& runs, const ReportRequest& request, const std::string& made);

/// Returns each figure as (file name, SVG).
std::vector<std::pair<std::string, std::string>> report_figures(const std::vector<RunRecord>& runs,
                                                                const ReportRequest& request);

}  // namespace athanor::inline report

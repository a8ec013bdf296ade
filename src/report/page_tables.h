#pragma once
// The tables of a report.

#include <string>
#include <vector>

#include "report/run_record.h"

namespace athanor::inline report {

/// A row for each run: size, progress, losses, speed, attempts, how it ended.
std::string runs_table(const std::vector<RunRecord>& runs);
/// The losses of several runs at the same tokens, with the difference from the first run; "" if tokens are not known.
std::string comparison_table(const std::vector<RunRecord>& runs);
/// What the time of each run went to; "" if it is not known.
std::string time_table(const std::vector<RunRecord>& runs);
/// Where the time of each rank went; "" if the runs had one rank, or too many.
std::string rank_tables(const std::vector<RunRecord>& runs);
/// What happened to each run.
std::string events_tables(const std::vector<RunRecord>& runs);
/// How the configurations differ, and each in full.
std::string settings_tables(const std::vector<RunRecord>& runs);

}  // namespace athanor::inline report

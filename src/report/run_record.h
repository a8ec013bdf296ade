#pragma once
// What a report reads of a run: its configuration, its steps and what happened to it.

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "plot/score_history.h"
#include "report/rank_record.h"
#include "report/run_events.h"
#include "report/run_settings.h"

namespace athanor::inline report {

/// The steps of a run. All lists have a value for each step; NaN where it is missing, infinity where it was not finite.
struct StepRecord {
  std::vector<double> steps;
  std::vector<double> tokens;   ///< seen after the step
  std::vector<double> seconds;  ///< worked until the end of the step, without the time between attempts
  std::map<std::string, std::vector<double>> fields;  ///< by the name in metrics.jsonl; members with dots
  std::vector<std::string> sources;                   ///< the members of tokens_drawn
  size_t num_router_layers = 0;

  size_t size() const { return steps.size(); }
  const std::vector<double>& field(const std::string& name) const { return fields.at(name); }
  /// Returns whether any step has a finite value of the field.
  bool has(const std::string& name) const;
};

struct RunRecord {
  std::string name;                      ///< how the page calls it
  std::filesystem::path folder;          ///< empty if a file of metrics was given
  RunSettings settings;                  ///< those of the last attempt
  std::vector<EarlierSettings> earlier;  ///< those that a later attempt changed, in order
  StepRecord steps;
  RankRecord ranks;  ///< without times if the run had one rank
  std::vector<RunEvent> events;
  RunResults evaluations;   ///< without results if the run has none
  bool is_running = false;  ///< its last event is no end
};

/// Reads a run folder or a file such as RUN/metrics-003.jsonl, also while the run writes it.
/// @throws ConfigError if it is neither, or has no step yet; IoError if a file cannot be read.
RunRecord read_run_record(const std::string& given);

}  // namespace athanor::inline report

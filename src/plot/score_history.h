#pragma once
// The scores of runs over their checkpoints, from results in the shape of lm_eval's: what a progression shows.

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace athanor::inline plot {

/// The results of a run's evaluations, in any order. Each has `results` and, in `athanor`, its step.
struct RunResults {
  std::string name;
  std::vector<nlohmann::ordered_json> results;
};

struct HistoryRequest {
  std::string
      metric;  ///< what every task shows; empty: acc_norm where a task has it, or else acc, bits_per_byte, or its first
  std::vector<std::string> tasks;        ///< only these, in this order; empty: all
  std::map<std::string, double> chance;  ///< the scores of guessing, of tasks whose results do not tell
};

struct Score {
  double value = 0;
  std::optional<double> error;  ///< its standard error
};

/// A task or a group with its metric; or the mean of all accuracies, whose name is "average".
struct ScoreColumn {
  std::string task, metric;
  int64_t num_fewshot = -1;      ///< −1: not known, or not the same in the whole group
  std::optional<double> chance;  ///< known of accuracies only
};

struct CheckpointScores {
  int64_t step = 0, tokens = -1;             ///< −1: not known
  std::vector<std::optional<Score>> scores;  ///< one for each column
};

struct RunScores {
  std::string name;
  std::vector<CheckpointScores> checkpoints;  ///< by step
};

struct ScoreHistory {
  std::vector<ScoreColumn> columns;
  std::vector<RunScores> runs;

  /// True if the tokens of every checkpoint are known.
  bool has_tokens() const;
};

/// Returns a column for each task that no combining group holds, and one for each such group. Two or more accuracies
/// also have a column for their mean, at the checkpoints that have all of them.
///
/// A column holds results of one kind: with the same number of examples and documents and the same version of the task.
/// Of several kinds it is the one that most runs have, then most checkpoints, then that of the most documents; a
/// warning counts the others. Of two results of a checkpoint the later one counts.
/// @throws ConfigError if no result has the tasks or the metric, with those that there are.
ScoreHistory make_score_history(const std::vector<RunResults>& runs, const HistoryRequest& request);

/// Returns `athanor.step` of results; −1 if they have none.
int64_t step_of_results(const nlohmann::ordered_json& results);

}  // namespace athanor::inline plot

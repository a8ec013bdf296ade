#pragma once
// Reads lm_eval's results leniently: files may be of other programs and versions, and what does not fit is left out.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "plot/score_history.h"

namespace athanor::inline plot {

/// One task or group of one results file.
struct ScoreEntry {
  std::string task, metric;
  Score score;
  int64_t num_fewshot = -1, num_documents = -1;
  std::string version;
  std::optional<double> chance;

  /// What two results must share to be points of one curve.
  std::string kind() const;
};

/// Returns the member of an object, or null.
const nlohmann::ordered_json* member_of(const nlohmann::ordered_json& object, const std::string& name);
/// Returns the member if it is an integer of 0 or more; otherwise −1.
int64_t count_in(const nlohmann::ordered_json& object, const std::string& name);

/// Returns the tasks and groups of the results that have the metric (empty: their first of acc_norm, acc and others),
/// without the tasks of groups that combine them, unless `asked` names them.
std::vector<ScoreEntry> score_entries(const nlohmann::ordered_json& results, const std::string& metric,
                                      const std::vector<std::string>& asked);

/// Adds the names of the metrics in the results.
void add_metrics(const nlohmann::ordered_json& results, std::set<std::string>& metrics);

}  // namespace athanor::inline plot

#pragma once
// The earlier evaluations of a run's branch, which rules compare with (`best`, `previous`).

#include <filesystem>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "record/evaluation_scores.h"

namespace athanor::inline run {

/// Returns what makes scores comparable in addition to the task: the number of documents and of examples, as the event
/// `evaluation` records it.
nlohmann::ordered_json evaluation_settings(const EvalConfig& config);

/// Returns the scores of the evaluations in events.jsonl that lie on the way to `step`, in their order: a start, also
/// one that goes back, forgets those of later steps than its own. Those with other settings do not count. Lines that
/// cannot be read are ignored, and a missing file has none.
std::vector<EvaluationScores> read_earlier_scores(const std::filesystem::path& events, const EvalConfig& config,
                                                  int64_t step);

/// Returns whether events.jsonl has an evaluation of this step with any settings, whose rules were applied, and the
/// step was not done again since. A missing file has none.
bool was_evaluated(const std::filesystem::path& events, int64_t step);

}  // namespace athanor::inline run

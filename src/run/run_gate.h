#pragma once
// Evaluation as a gate of a run: the model is evaluated every eval.interval steps and after the last one, if asked also
// before the first one, and rules on its scores warn or stop the run (docs/evaluation-gate.md).

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/signals.h"
#include "config/run_config.h"
#include "metrics/metrics.h"
#include "record/evaluation_scores.h"
#include "run/run_evaluation.h"
#include "saves/run_saves.h"
#include "train/run_context.h"

namespace athanor::inline run {

class RunGate {
 public:
  /// @param evaluation  was prepared; null: the run evaluates nothing. All arguments must outlive this object.
  /// @param signals  a signal that ends the run ends an evaluation, too.
  RunGate(RunEvaluation* evaluation, TrainState& state, RunSaves& saves, RunContext& at, const SignalGuard& signals);

  /// Returns whether the step that was done last is to be evaluated; the same on all ranks.
  /// @param is_last  the run is complete.
  bool is_due(bool is_last) const;
  /// Returns whether the model is to be evaluated before the first step; the same on all ranks.
  bool is_due_on_start() const;
  /// Returns whether an evaluation is missing after the last step of an earlier attempt. It was due, but the run's
  /// history has no result, since a signal or an error came first. Collective over the world.
  /// @param is_last  as for is_due.
  bool is_owed(bool is_last) const;
  /// Evaluates the model, and tells log and history. At step 0 no rule is applied. Collective over the world.
  /// @return the scores, on the first rank; none if a signal ended the evaluation.
  /// @throws UnreadableData on all ranks if the first one cannot read its rows.
  EvaluationScores evaluate();

  /// Returns whether a rule of eval.stop_if held in the last evaluation; the same on all ranks.
  bool stops() const { return stops_; }
  /// Returns whether a signal has ended the last evaluation; the same on all ranks.
  bool was_interrupted() const { return was_interrupted_; }
  /// Returns the rule that stops the run, with its numbers; on the first rank.
  const std::string& reason() const { return reason_; }

 private:
  bool was_last_before() const;
  void tell(const EvaluationReport& report);
  void tell(const BrokenRule& rule);

  RunEvaluation* evaluation_;
  TrainState& state_;
  RunSaves& saves_;
  RunContext& at_;
  const SignalGuard& signals_;
  std::vector<EvaluationScores> earlier_;  // on the first rank
  bool stops_ = false, was_interrupted_ = false;
  std::string reason_;
};

// The earlier evaluations of a run's branch, which rules compare with (`best`, `previous`).

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

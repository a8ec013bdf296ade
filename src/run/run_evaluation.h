#pragma once
// What a run asks of an evaluation of its model. The room `eval` implements it (eval/gate_evaluation.h), since only
// that knows tasks; here is what a run needs of it.

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/team.h"
#include "record/evaluation_scores.h"
#include "train/train_state.h"

namespace athanor::inline run {

/// A rule of eval.warn_if or eval.stop_if that holds.
struct BrokenRule {
  std::string rule;  ///< as the configuration has it
  bool stops = false;
  std::string text;  ///< the numbers: "arc_easy acc is 0.2417, less than 0.2761 (chance 0.25 + 2 stderr 0.01305)"
  double value = 0, limit = 0;
};

/// Read on the first rank only.
struct EvaluationReport {
  EvaluationScores scores;
  std::vector<BrokenRule> rules;  ///< those that hold, the ones that stop the run last
  std::string table;              ///< for people, with lines that end with "\n"
  std::filesystem::path file;     ///< with the full results; empty if it could not be written
  int64_t documents = 0;
  double seconds = 0;
  bool was_interrupted = false;  ///< nothing else is set then
};

class RunEvaluation {
 public:
  virtual ~RunEvaluation() = default;

  /// Reads tasks, rows and rules, before the run's folder changes: everything that can be wrong with them is found
  /// here. A second call does nothing. Collective over the team of all ranks.
  /// @param tokenizer  file of the tokenizer that the data was made with.
  /// @throws ConfigError, DataError or IoError, the same on all ranks.
  virtual void prepare(const RunConfig& config, const std::filesystem::path& tokenizer, const DataIdentity& data,
                       const Team& team) = 0;

  /// Evaluates the model as it is. Nothing of the state changes but memory that is kept. Collective over the model's
  /// mesh.
  /// @param earlier  on the first rank: the scores of this branch's earlier evaluations, in their order.
  /// @param must_end  asked on the first rank from time to time: true ends the evaluation without a result.
  /// @throws UnreadableData on all ranks if the first one cannot read its rows any more.
  virtual EvaluationReport evaluate(TrainState& state, const std::vector<EvaluationScores>& earlier,
                                    const std::function<bool()>& must_end) = 0;
};

}  // namespace athanor::inline run

#pragma once
// Evaluates a run's model while it trains, and decides the rules of [eval] (docs/evaluation-gate.md). Tasks, requests
// and scores are those of `athanor eval`; the model is the run's own, on its ranks and devices.

#include <memory>

#include "run/run_evaluation.h"

namespace athanor::inline eval {

class GateEvaluation : public RunEvaluation {
 public:
  GateEvaluation();
  ~GateEvaluation() override;

  void prepare(const RunConfig& config, const std::filesystem::path& tokenizer, const DataIdentity& data,
               const Team& team) override;
  EvaluationReport evaluate(TrainState& state, const std::vector<EvaluationScores>& earlier,
                            const std::function<bool()>& must_end) override;

 private:
  struct Prepared;
  std::unique_ptr<Prepared> prepared_;  // on the first rank, once prepare() was called
  bool is_prepared_ = false;
};

}  // namespace athanor::inline eval

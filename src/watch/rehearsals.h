#pragma once
// The faults that the configuration plans ([faults]), so that users can try what a run does about them.
//
// Nothing that detects faults reads the plan: a fault acts on the process, or on tensors as an observer.

#include <filesystem>
#include <optional>
#include <set>

#include "config/run_config.h"
#include "ops/device/delay.h"
#include "parallel/observer.h"
#include "train/run_context.h"
#include "train/train_state.h"

namespace athanor::inline watch {

/// @throws ConfigError if faults are planned and the environment does not allow them (ATHANOR_ALLOW_FAULTS=1). It is
/// also thrown unless each fault names exactly one rank, host or sequence, and the run has that, and the weight if the
/// fault names one.
/// @param config  with the model of `model.from`.
void check_faults(const RunConfig& config, int world_size);

/// An observer that plays the faults of this rank. It is added before all others, so that these see what it does. It
/// also acts when phases begin.
class Rehearsals : public Observer, public PhaseWatcher {
 public:
  /// Makes itself `at.phases.watcher`. The references must outlive this.
  Rehearsals(const FaultsConfig& faults, TrainState& state, RunContext& at);
  ~Rehearsals() override;

  void begin_gradients() override;
  void observe(const Observation& observation) override;
  void begins(board::Phase phase) override;

  /// Warns of faults that have not acted although their step has passed: what they act on did not occur, so the run has
  /// not survived them. To be called when the run is complete. Collective.
  void tell_what_did_not_act();

 private:
  bool is_here(const FaultConfig& fault) const;
  bool is_time(const FaultConfig& fault) const;
  bool is_in_its_step(const FaultConfig& fault, const Observation& observation) const;
  bool is_its_tensor(const FaultConfig& fault, const Observation& observation) const;
  bool may_act(size_t index);
  void act(const FaultConfig& fault, const std::string& place, const Tensor& tensor);
  void tear_checkpoints();
  Tensor memory_of(const FaultConfig& fault) const;
  Tensor state_of(const FaultConfig& fault) const;

  const FaultsConfig& faults_;
  TrainState& state_;
  RunContext& at_;
  std::set<size_t> acted_;                   // in the present computation of the step
  std::set<size_t> due_;                     // those whose step this process has computed
  std::set<size_t> played_;                  // those that have acted, in this process or in the run folder
  std::optional<ops::device::Delay> delay_;  // if this rank has a device that shall be slow
};

}  // namespace athanor::inline watch

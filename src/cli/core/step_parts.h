#pragma once
// The parts of a training step by themselves, at a model's shapes: each can be timed and held against its own limit.

#include <vector>

#include "cli/core/bench_timer.h"
#include "train/train_state.h"

namespace athanor::bench {

/// What bounds a part.
enum class Bound { kGemm, kCopy, kRead };

struct StepPart {
  Subject subject;
  double calls;  ///< in a step
  Bound bound;
};

/// Parts in the order of a forward pass, each forward and backward, then gradient norm and optimizer. Layers' parts
/// have weights of their own, as large as one layer's; the last two work on `state`, whose weights they leave as they
/// are (its moments move).
std::vector<StepPart> step_parts(TrainState& state);

/// The same of the sparse block, where there is one: verified before it is timed. @return what was verified.
std::string verify_parts(const RunConfig& config);

}  // namespace athanor::bench

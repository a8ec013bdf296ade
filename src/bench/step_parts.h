#pragma once
// The parts of a training step as separate subjects, at a model's shapes, so that each can be timed and compared with
// its own limit.

#include <vector>

#include "bench/timer.h"
#include "train/train_state.h"

namespace athanor::bench {

/// The reference that bounds a part: matrix products, copying or reading memory.
enum class Bound { kGemm, kCopy, kRead };

struct StepPart {
  Subject subject;
  double calls;  ///< number of calls in a step
  Bound bound;
};

/// Returns the parts in the order of a forward pass, each with forward and backward, then gradient norm and optimizer.
/// The layers' parts have separate weights, as large as one layer's. The last two parts work on `state`: they leave its
/// weights as they are but change its moments.
std::vector<StepPart> step_parts(TrainState& state);

/// Verifies the sparse block, if the model has one, before it is timed. @return what was verified; empty if it has
/// none.
/// @throws Error if it is wrong.
std::string verify_parts(const RunConfig& config, at::Device device = at::kCPU);

}  // namespace athanor::bench

#pragma once
// Decides whether a value that is not finite is the fault of a node, or of the model and its data.
//
// A model usually diverges in the microbatch of one rank, so that one rank alone has seen it proves nothing. The step
// is computed again with that rank's work on another node (watch/step_again.h). If the value comes up there, it follows
// the work: the model or its data. If it stays with the node, or is gone, the node computed wrong numbers.
// Source: Optimus §4 (soft failures); the repetition is ours.

#include <optional>
#include <string>

#include "watch/step_again.h"

namespace athanor::inline watch {

struct NumbersVerdict {
  enum class Fault {
    kNode,      ///< the origin's
    kModel,     ///< or its data
    kUnproven,  ///< it could not be tried, or gave no answer; taken for the model
  };
  Fault fault = Fault::kUnproven;
  std::optional<NotFiniteOrigin> origin;  ///< nothing if no value that was watched was not finite
  std::string node;                       ///< name of the origin's node
  bool came_up_once = false;              ///< all was finite when the same nodes did the same work again
  std::string reason;                     ///< how it was decided, a clause

  int exit_code() const;
};

/// Collective over the mesh, with the same arguments but the batch: the verdict is the same on every rank. Computes the
/// step again, unless the value came up on several nodes of CPUs. If no watch saw the step, since it was launched as a
/// graph, the origin is that of the second time. Leaves the gradients zero and the weights as they are.
NumbersVerdict find_fault(TrainState& state, const RefusedStep& refused);

}  // namespace athanor::inline watch

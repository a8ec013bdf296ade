#pragma once
// Computes the gradients of a step again with the work of each rank done by another. That shows whether a value that is
// not finite follows the work or stays with the rank. The bits of a microbatch do not depend on who computes it.
//
// If other ranks have the same weights, they only get the sequences. Otherwise each rank gets the weights and the
// sequences of the rank that it stands in for, in a second model with further groups. That needs memory for these
// weights and their gradients while the first model keeps its own.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "layout/layout.h"
#include "parallel/rank_nodes.h"
#include "train/train_state.h"
#include "watch/finite_watch.h"

namespace athanor::inline watch {

/// Which rank does the work of which other one when a step is computed again on other nodes.
struct StandIns {
  /// What a rank takes over: the sequences of another data rank, for which it has the same weights; or another rank's
  /// place in the layout, with its weights, where no other node has these.
  enum class TakesOver { kSequences, kPlace };
  TakesOver what = TakesOver::kSequences;
  /// kSequences: data rank d does the work of data rank d − shift (mod data ranks), which has its other coordinates.
  /// kPlace: rank r does that of rank r − shift (mod ranks).
  int shift = 0;

  /// Returns the rank that does the work of `rank`.
  int stand_in_for(const Layout& layout, int rank) const;
  /// Returns the rank whose work `rank` does.
  int replaced_by(const Layout& layout, int rank) const;
};

/// Returns stand-ins of which the one for `rank` is on another node; nothing if all ranks are on one node. They take
/// over sequences if some node other than this rank's has its weights, those of its experts too.
/// @param node_of_rank  for each rank of the layout.
std::optional<StandIns> choose_stand_ins(const Layout& layout, const std::vector<int>& node_of_rank, int rank);

/// A step that was not applied.
struct RefusedStep {
  const Batch& batch;
  int64_t step = 0;                    ///< its number
  std::shared_ptr<FiniteWatch> watch;  ///< one of the state's observers, which saw it; null: none has
};

/// What came of it.
struct ComputedAgain {
  std::optional<NotFiniteOrigin> origin;  ///< as find_origin, `rank` and `host` being those that computed
  bool on_stand_in = false;               ///< the value came up where the work had gone
  bool on_node = false;                   ///< the value came up on the node where it came up before
  std::string impossible;                 ///< why nothing was computed; "" if it was
};

/// Collective over the mesh, with the same arguments but the batch. Leaves the gradients zero and the weights as they
/// are. On a device the parts of layers are watched, too, since the cost of a step that is computed again does not
/// matter. @param rank  where the value came up before.
ComputedAgain compute_again(TrainState& state, const RefusedStep& refused, const StandIns& stand_ins, int rank,
                            const RankNodes& nodes);

/// Computes the gradients of a step again, each rank with its own work, and without a recorded graph. Returns what
/// find_origin returns. It is collective, and leaves the gradients and the weights as compute_again does.
std::optional<NotFiniteOrigin> compute_again_here(TrainState& state, const RefusedStep& refused);

}  // namespace athanor::inline watch

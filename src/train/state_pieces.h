#pragma once
// A rank's part of the state as slices of logical tensors: the slices that it writes and reads.

#include <string>
#include <vector>

#include "checkpoint/reader.h"
#include "checkpoint/team.h"
#include "checkpoint/writer.h"
#include "parallel/share.h"
#include "train/train_state.h"

namespace athanor {

/// Returns the team of all ranks of a state's mesh. The team reports its work to the world, so that other ranks wait as
/// long as it works.
Team team_of(const Mesh& mesh);

/// Returns the master weights and the optimizers' state. If several ranks own the same elements each returns a part, so
/// that together the ranks hold every element once.
std::vector<PieceView> state_pieces(const TrainState& state);
/// Returns the master weights alone.
std::vector<PieceView> master_pieces(const ModelState& model);
/// Returns the gradients as compute_gradients left them, summed over ranks: tensors "grad/NAME".
std::vector<PieceView> gradient_pieces(const ModelState& model);

/// Returns the tensors of the optimizers' state that the checkpoint lacks: "exp_avg/NAME", ...
std::vector<std::string> missing_state(const TrainState& state, const CheckpointReader& checkpoint);

enum class Moments {
  kLoad,  ///< the checkpoint must have all of them
  kFresh  ///< they stay as they are: zero, in a state that has not taken a step
};
/// Reads the master weights and moments that this rank owns. If several ranks own the same elements, one reads and the
/// others get them as checkpoint.load determines. Then the ranks gather the weights that forward reads. Collective.
void load_state_pieces(TrainState& state, const CheckpointReader& checkpoint, Moments moments);

/// Reads the master weights from `read`, which returns the elements of a logical parameter from `first` on. If several
/// ranks hold a parameter, one reads and the others get it as `how` determines (checkpoint.load). Collective.
void load_master(ModelState& model, SharedBy how,
                 const std::function<void(const std::string& name, int64_t first, std::span<float> out)>& read);

}  // namespace athanor

#pragma once
// A rank's part of the state as slices of logical tensors: what it writes, and what it reads.

#include <string>
#include <vector>

#include "checkpoint/reader.h"
#include "checkpoint/team.h"
#include "checkpoint/writer.h"
#include "train/train_state.h"

namespace athanor {

/// All ranks of a state's mesh, whose work the world is told of: others wait for it as long as it goes on.
Team team_of(const Mesh& mesh);

/// Master and moments. Of what several ranks own each has a part, so that together they hold every element once.
std::vector<PieceView> state_pieces(const TrainState& state);
/// The master alone.
std::vector<PieceView> master_pieces(const TrainState& state);
/// Gradients as compute_gradients left them, summed over ranks: tensors "grad/NAME".
std::vector<PieceView> gradient_pieces(const TrainState& state);

/// The moments that the model has and the checkpoint has not: "exp_avg/NAME", ...
std::vector<std::string> missing_moments(const ModelConfig& model, const CheckpointReader& checkpoint);

enum class Moments {
  kLoad,  ///< the checkpoint must have all of them
  kFresh  ///< they stay as they are: zero, in a state that has not taken a step
};
/// Reads master and moments of what this rank owns. Of ranks that own the same, one reads; the others get it as
/// checkpoint.load says. Then the weights that forward reads are gathered. Collective.
void load_state_pieces(TrainState& state, const CheckpointReader& checkpoint, Moments moments);

/// Reads the master from `read`, which gives elements from `first` on of a logical parameter. Of the ranks that hold a
/// parameter one reads; the others get it as checkpoint.load says. Collective.
void load_master(TrainState& state,
                 const std::function<void(const std::string& name, int64_t first, std::span<float> out)>& read);

}  // namespace athanor

#pragma once
// Continues a run from a local checkpoint (checkpoint/local_store.h), wherever its pieces lie: a node that has lost its
// pieces, or needs others than before since the layout has changed, gets them from the nodes that have them.

#include <filesystem>
#include <optional>
#include <string>

#include "checkpoint/local_plan.h"
#include "checkpoint/local_store.h"
#include "parallel/mesh.h"
#include "train/beginning.h"
#include "train/local_save.h"
#include "train/rank_nodes.h"
#include "train/train_state.h"

namespace athanor {

/// What a start finds of local checkpoints.
struct LocalStart {
  RankNodes nodes;
  std::optional<LocalStore> found = {};    ///< what this rank's node has, where where.json of the run has it
  std::optional<LocalChoice> choice = {};  ///< the one to continue from; the same on all ranks
  std::optional<LocalStore> place = {};    ///< where this rank's node will write; none without local checkpoints
};

/// Looks for local checkpoints that are newer than what `begin` continues from, and checks that checkpoint.local_dir
/// can be used: that it can be made on each node, and has room. Changes nothing. Collective over the mesh's world.
/// @throws ConfigError, with the node, if it cannot be used.
LocalStart look_for_local(const RunConfig& config, const Beginning& begin, const Mesh& mesh);

/// Loads what was chosen: gathers its manifest, moves files between nodes, and loads. Collective.
/// @return the checkpoint's folder on this rank's node; none, after a warning, if the checkpoint is damaged or not
/// finite: then the state's tensors are those of no checkpoint.
/// @throws as load_checkpoint for a checkpoint that does not fit.
std::optional<std::filesystem::path> load_local(TrainState& state, const LocalStart& local);

/// Records where local checkpoints are written, in where.json of the run's folder: where the next start looks for them.
/// To be called on the first rank. @throws IoError.
void record_local(const LocalPlace& place, const comm::World& world);

/// Returns the bytes of memory or disk that local checkpoints take on a node, for each byte of the pieces of its ranks:
/// two checkpoints at a time, with the copies that it keeps for another node.
int64_t local_copies(const RankNodes& nodes);

}  // namespace athanor

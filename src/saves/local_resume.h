#pragma once
// Continues a run from a local checkpoint (checkpoint/local_store.h), wherever its pieces lie: a node that has lost its
// pieces, or needs others than before since the layout has changed, gets them from the nodes that have them.

#include <filesystem>
#include <optional>

#include "saves/local_start.h"
#include "train/train_state.h"

namespace athanor::inline saves {

/// Loads what was chosen: gathers its manifest, moves files between nodes, and loads. Collective.
/// @return the checkpoint's folder on this rank's node; none, after a warning, if the checkpoint is damaged or not
/// finite: then the state's tensors are those of no checkpoint.
/// @throws as load_checkpoint for a checkpoint that does not fit.
std::optional<std::filesystem::path> load_local(TrainState& state, const LocalStart& local);

}  // namespace athanor::inline saves

#pragma once
// What a start finds of local checkpoints (checkpoint/local_store.h), and where it will write its own.

#include <optional>
#include <vector>

#include "checkpoint/local_plan.h"
#include "checkpoint/local_store.h"
#include "parallel/mesh.h"
#include "parallel/rank_nodes.h"
#include "saves/local_save.h"
#include "saves/resume_point.h"

namespace athanor::inline saves {

struct LocalStart {
  RankNodes nodes;
  std::optional<LocalStore> found = {};  ///< what this rank's node has, where where.json of the run has it
  /// What nodes have left on this host that are not in the job now, or had other names: for the leader of its first
  /// node.
  std::vector<LocalStore> left = {};
  std::optional<LocalChoice> choice = {};  ///< the one to continue from; the same on all ranks
  std::optional<LocalStore> place = {};    ///< where this rank's node will write; none without local checkpoints
};

/// Looks for local checkpoints that are newer than what `begin` continues from, and checks that checkpoint.local_dir
/// can be used: that it can be made on each node, and has room. Changes nothing. Collective over the mesh's world.
/// @throws ConfigError, with the node, if it cannot be used.
LocalStart look_for_local(const RunConfig& config, const ResumePoint& begin, const Mesh& mesh);

/// Records where local checkpoints are written, in where.json of the run's folder: where the next start looks for them.
/// To be called on the first rank. @throws IoError.
void record_local(const LocalPlace& place, const comm::World& world);

}  // namespace athanor::inline saves

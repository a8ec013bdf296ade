#pragma once
// Writes local checkpoints: each rank's pieces on its node, and a copy of them on the partner node
// (checkpoint/local_store.h). A state survives the loss of any node whose partner is not lost with it.

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "checkpoint/local_store.h"
#include "checkpoint/writer.h"
#include "comm/communicator.h"
#include "parallel/rank_nodes.h"
#include "parallel/share.h"

namespace athanor::inline saves {

/// Where the local checkpoints of a run lie, as one rank sees it.
struct LocalPlace {
  RankNodes nodes;
  LocalStore store;     ///< what this rank's node keeps
  int64_t attempt = 0;  ///< number of this start of the run
};

/// Returns the bytes of memory or disk that local checkpoints take on a node of a job of `num_nodes`, for each byte of
/// the pieces of its ranks: two checkpoints at a time, with the copies that it keeps for another node.
constexpr int64_t local_copies(int num_nodes) { return num_nodes == 1 ? 2 : 4; }

/// Writes the local checkpoint of `step`, and then removes the one before it: at any moment one is whole. Collective
/// over the ranks of the run.
/// @param pieces        those of this rank.
/// @param model, state  as in write_checkpoint.
/// @param team, group   all ranks of the run, in the order of the world.
/// @param wait          for what is sent and received.
/// @param options       how pieces are written.
/// @throws IoError on every rank, if a file cannot be written on any: nothing of the checkpoint is left, and the one
/// before it stays.
void write_local_checkpoint(const LocalPlace& place, int64_t step, const std::vector<PieceView>& pieces,
                            const nlohmann::json& model, const nlohmann::json& state, const Team& team,
                            comm::Communicator& group, const std::function<void(comm::Pending& pending)>& wait,
                            const WriteOptions& options);

}  // namespace athanor::inline saves

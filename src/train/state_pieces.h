#pragma once
// A rank's part of the state as slices of whole tensors, named as checkpoints name them: the slices that it writes and
// reads.

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/reader.h"
#include "checkpoint/team.h"
#include "checkpoint/writer.h"
#include "layout/buckets.h"
#include "layout/shards.h"
#include "parallel/share.h"
#include "train/optimizer_pieces.h"
#include "train/train_state.h"

namespace athanor::inline train {

/// Returns the team of all ranks of a state's mesh. The team reports its work to the world, so that other ranks wait as
/// long as it works.
Team team_of(const Mesh& mesh);

/// Returns the parts of parameters that this rank counts for sums over all ranks: together the ranks have every element
/// once. In the order of the parameters, in time that is linear in their number.
std::vector<EntryPart> canonical_parts(const ModelState& model);
/// The same of a store, also of one without memory.
std::vector<EntryPart> canonical_parts(const ParameterStore& parameters, const ShardPlan& plan);

/// Returns the pieces of the master weights ("master/NAME") and of the optimizers' state ("exp_avg/NAME", ...) that
/// this rank writes. If several ranks own the same elements each returns a part, so that together the ranks' pieces
/// have every element once; with checkpoint.writers = "first" the first of them returns all of these parts. Pieces
/// refer to the memory of the state.
std::vector<PieceView> state_pieces(const TrainState& state);
/// Returns the pieces of the master weights alone.
std::vector<PieceView> master_pieces(const ModelState& model, Writers writers = Writers::kScattered);
/// Returns the pieces of the gradients as compute_gradients left them, summed over ranks: tensors "grad/NAME".
std::vector<PieceView> gradient_pieces(const ModelState& model);

/// The parameters whose optimizer state begins at zero in a load; that of the others is read.
struct FreshState {
  bool all = false;  ///< every parameter's, and the state that belongs to no parameter
  std::set<std::string> parameters = {};

  bool has(const std::string& parameter) const { return all || parameters.contains(parameter); }
};
/// Returns the master weights and moments that this rank reads, as targets of a load: what it owns, without what begins
/// fresh. If several ranks own the same elements, one reads them.
std::vector<TargetView> state_targets(TrainState& state, const FreshState& fresh);
/// Sets the optimizers' state to zero, after a load that may have filled some of it.
void zero_optimizer_state(TrainState& state);
/// To be called when the targets of every rank are full: what begins fresh becomes zero, as a checkpoint that was
/// passed over may have filled some of it. Ranks that own the same elements get them as checkpoint.load determines,
/// then the ranks gather the weights that forward reads. Collective.
void share_loaded_state(TrainState& state, const FreshState& fresh);

/// Sets the master weights, and the weights that forward reads, from `read`. If several data ranks hold a parameter,
/// the first of them reads and the others get it as `how` determines (checkpoint.load). Collective. An exception of
/// `read` is thrown on the rank that called it only.
/// @param read  writes elements [first, first + out.size()) of a whole parameter, row-major, to `out`. Several threads
///        may call it at once.
void load_master(ModelState& model, SharedBy how,
                 const std::function<void(const std::string& name, int64_t first, std::span<float> out)>& read);

// Pieces of flat memory in order, and those of them that lie in a range.

/// Calls visit(common, piece) for each piece that has elements in `range`, in order; `common` are these elements.
/// @param pieces  each with a FlatRange `range`, in the order of flat memory.
template <class Pieces, class Visit>
void for_each_piece_in(const Pieces& pieces, FlatRange range, Visit visit) {
  auto piece = std::ranges::lower_bound(pieces, range.begin + 1, {}, [](const auto& p) { return p.range.end; });
  for (; piece != pieces.end() && piece->range.begin < range.end; ++piece)
    visit(intersect(piece->range, range), *piece);
}

}  // namespace athanor::inline train

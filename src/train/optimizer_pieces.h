#pragma once
// A rank's part of the optimizers' state as slices of whole tensors, as their declarations define them
// (layout/optimizer_state.h).
//
// Per-element state has the shape of its parameter and is cut as the master is. Per-matrix state has one value for each
// matrix of its parameter; of the ranks that hold a part of a matrix, the one whose canonical part has its first
// element writes the value. A scalar is written by the first rank. Every rank reads all per-matrix state and scalars
// that it holds: they are small.

#include <functional>
#include <span>
#include <vector>

#include "checkpoint/reader.h"
#include "checkpoint/writer.h"
#include "optim/optimizer_set.h"

namespace athanor::inline train {

/// Returns the elements of a range of flat memory that are an entry's, as a slice of its tensor.
Slice slice_of(const BucketEntry& entry, FlatRange range);

/// A part of an entry: a range of flat memory within it.
struct EntryPart {
  const BucketEntry* entry;  ///< in a table that outlives it
  FlatRange range;
};

/// Appends the pieces that this rank writes.
/// @param written  the parts of each entry that this rank writes, in the order of the table.
void add_optimizer_pieces(const OptimizerSet& set, const Mesh& mesh, std::span<const EntryPart> written,
                          std::vector<PieceView>& pieces);

/// Appends, as targets of a load, the per-element state of an owned range of flat memory within one entry.
void add_element_targets(const OptimizerSet& set, const BucketEntry& entry, FlatRange owned,
                         std::vector<TargetView>& targets);
/// Appends, as targets of a load, the per-matrix state of the parameters that `reads` takes, and the scalars.
void add_whole_targets(const OptimizerSet& set, const std::function<bool(const BucketEntry&)>& reads,
                       std::vector<TargetView>& targets);
/// Sets the state of a parameter that this rank holds to zero.
void zero_state_of(const OptimizerSet& set, const BucketEntry& entry);

/// Calls visit(values) for the per-element state of the owned elements in `range` of flat memory, once for each kind
/// and contiguous piece. Ranks that own the same elements have the same order of calls.
void for_each_owned_state(const OptimizerSet& set, FlatRange range, const std::function<void(const Tensor&)>& visit);

}  // namespace athanor::inline train

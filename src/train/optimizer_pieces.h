#pragma once
// A rank's part of the optimizers' state as slices of logical tensors, as their declarations define them.
//
// Per-element state has the shape of its parameter and is cut as the master is. Per-matrix state has one value for each
// matrix of its parameter, and the rank that counts the parameter's first element writes it. A scalar belongs to the
// first rank. Ranks that hold per-matrix state or scalars without writing them read them all the same: they are small.

#include <functional>
#include <vector>

#include "checkpoint/reader.h"
#include "checkpoint/writer.h"
#include "optim/optimizer_set.h"

namespace athanor {

/// Returns the elements of a range of flat memory that are an entry's, as a slice of its tensor.
Slice slice_of(const BucketEntry& entry, FlatRange range);

/// A visit of the part of an entry that lies in some range.
using VisitPart = std::function<void(const BucketEntry& entry, FlatRange range)>;

/// Appends the pieces that this rank writes.
/// @param for_each_canonical  visits the canonical part of each entry, in the order of the table.
void add_optimizer_pieces(const OptimizerSet& set, const Mesh& mesh,
                          const std::function<void(const VisitPart&)>& for_each_canonical,
                          std::vector<PieceView>& pieces);

/// Appends the per-element state of an owned range within one entry.
void add_element_targets(const OptimizerSet& set, const BucketEntry& entry, FlatRange owned,
                         std::vector<TargetView>& targets);
/// Appends the per-matrix state and the scalars that this rank holds.
void add_whole_targets(const OptimizerSet& set, std::vector<TargetView>& targets);

/// Calls visit(values) for the per-element state of the owned elements in `range`, in one order on all equal owners.
void for_each_owned_state(const OptimizerSet& set, FlatRange range, const std::function<void(const Tensor&)>& visit);

}  // namespace athanor

#pragma once
// The part of each parameter that a rank holds, and the other ranks that hold the same part.

#include <cstdint>
#include <vector>

#include "arch/inventory.h"
#include "layout/buckets.h"
#include "layout/layout.h"
#include "layout/replication.h"

namespace athanor::inline layout {

/// One parameter, or the slice of it that a rank holds. With a tensor degree of 1 the parameters of the replication
/// kinds replicated, partial and key_value are dense instead, as are those of tied with a pipeline degree of 1.
struct HeldParameter {
  ParameterSpec spec;
  std::vector<int64_t> offset, extent;  ///< slice of spec.shape
  Replication replication;
  int64_t forward_index = 0;  ///< position in the forward pass: 0 for the embedding, 1 + l for layer l, then the rest
};

/// Returns the parameters that `rank` (of the world) holds, in the order of forward: those of its pipeline stages, and
/// of each layer's experts an equal share of consecutive ones. Tensor rank t of n holds rows [⌊V·t/n⌋, ⌊V·(t+1)/n⌋) of
/// the vocabulary (V: its size), and an equal part of everything else that is cut. If there are fewer key and value
/// heads than tensor ranks, it holds the key and value head ⌊t · number of these heads / n⌋.
std::vector<HeldParameter> held_parameters(const ModelConfig& model, const ParallelismConfig& parallelism,
                                           const Layout& layout, int rank);

/// Returns the bucket table of these parameters, not yet laid out.
std::vector<BucketEntry> make_bucket_entries(const std::vector<HeldParameter>& held);

}  // namespace athanor::inline layout

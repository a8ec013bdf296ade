#pragma once
// The part of each parameter that a rank holds, and the other ranks that hold the same part.

#include <cstdint>
#include <string>
#include <vector>

#include "arch/inventory.h"
#include "layout/layout.h"

namespace athanor {

/// One parameter, or the slice of it that a rank holds. All parameters of one group have the same holders, and their
/// gradients are summed and their state is sharded in the same way. Each group is held by the ranks of kData (group
/// "expert": of kExpertData) that have the same tensor and pipeline coordinates, and its gradient is summed over them.
/// Some groups have further holders:
///
///   group         further holders  each holder's gradient, after the sum over data ranks
///   dense         –                the gradient of its slice
///   expert        –                the gradient of its slice of its experts
///   replicated    kTensor          the whole gradient, which every tensor rank has computed (routers, norms)
///   partial       kTensor          a partial sum over its heads (QK-norm of each head) or over its tokens (norms under
///                                  sequence_parallel); the partial sums are added up
///   key_value     kKeyValue        a partial sum over its query heads (keys and values that several ranks hold); the
///                                  partial sums are added up
///   tied          kTied            the embedding's or the output's share; the two are added up
/// With a tensor degree of 1 the parameters of replicated, partial and key_value are in "dense" instead, as are those
/// of tied with a pipeline degree of 1.
struct HeldParameter {
  ParameterSpec spec;
  std::vector<int64_t> offset, extent;  ///< slice of spec.shape
  std::string group;
  int64_t place;  ///< position in the forward pass: 0 for the embedding, 1 + l for layer l, then the rest
};

/// Returns the parameters that `rank` holds, in the order of forward. Tensor rank t of n holds rows
/// [V·t/n, V·(t+1)/n) of the vocabulary, and an equal part of everything else that is cut. If there are fewer key and
/// value heads than tensor ranks, it holds head t·heads/n.
std::vector<HeldParameter> held_parameters(const ModelConfig& model, const ParallelismConfig& parallelism,
                                           const Layout& layout, int rank);

}  // namespace athanor

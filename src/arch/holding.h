#pragma once
// Which part of which parameter a rank holds, and who else holds the same.

#include <cstdint>
#include <string>
#include <vector>

#include "arch/inventory.h"
#include "arch/layout.h"

namespace athanor {

/// Parameters of a group are held, summed and sharded alike. Every group is also held, and its gradient summed, by the
/// ranks of kData ("expert": of kExpertData) at the same tensor and pipeline coordinates; `beside` them by
///
///   group         beside       each holder's gradient, summed over data ranks, is
///   dense         –            the gradient of its slice
///   expert        –            the gradient of its slice of its experts
///   replicated    kTensor      the whole gradient: every tensor rank has computed the same (routers, norms)
///   partial       kTensor      a part: of its heads (QK-norm of each head), of its tokens (norms under
///                              sequence_parallel); they are added up
///   key_value     kKeyValue    a part: of its query heads (keys and values that several ranks hold); added up
///   tied          kTied        a part: of the embedding, or of the output; added up
/// With a tensor degree of 1 the groups replicated, partial and key_value are "dense", and tied is with a pipeline
/// degree of 1.
struct HeldParameter {
  ParameterSpec spec;
  std::vector<int64_t> offset, extent;  ///< slice of spec.shape
  std::string group;
  int64_t place;  ///< in the forward pass: 0 embedding, 1 + l of layer l, then what follows
};

/// In the order of forward. Tensor rank t of n holds rows [V·t/n, V·(t+1)/n) of the vocabulary, and equal parts of
/// everything else that is cut; of key and value heads, where there are fewer than ranks, head t·heads/n.
std::vector<HeldParameter> held_parameters(const ModelConfig& model, const ParallelismConfig& parallelism,
                                           const Layout& layout, int rank);

}  // namespace athanor

#pragma once
// What ranks send in a step, by purpose.

namespace athanor {

enum class TrafficPurpose {
  kGradients,
  kWeights,
  kLayers,      ///< sums and gathers of tensor ranks within layers and embedding
  kVocabulary,  ///< their losses
  kStages,      ///< hidden states and gradients between pipeline stages
  kTokens,      ///< to experts and back, with their choices and weights
  kBalance,     ///< choices of a balance group
  kLosses,      ///< numbers of the step: losses, counts, norms
  kUpdates,     ///< between optimizers
};

/// Returns "gradients", "weights", ….
const char* purpose_name(TrafficPurpose purpose);

}  // namespace athanor

#pragma once
// A decoder in plain torch calls and fp64, differentiated by torch: it gives the right losses and gradients of a step.
//
// It is written from the definitions, independently of ops/, model/, moe/ and parallel/, of which it includes nothing:
// its order of sums is torch's, its arithmetic has 29 bits more than fp32, its backward is autograd's. It knows
// parameters only by their names and shapes. It is for small models: the scores of attention and of the vocabulary are
// held whole, and every expert multiplies every token.

#include <ATen/ATen.h>

#include <map>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "verify/portable/portable_router.h"

namespace athanor::inline verify::portable {

/// fp64 leaves that require gradients, by logical name (arch/inventory.h).
using Parameters = std::map<std::string, Tensor>;

/// The values that routers carry from step to step, [sparse layers, experts]; undefined for dense models.
struct RouterMemory {
  Tensor previous_share;  ///< choices of each expert per token in the previous step; k / E at first
  Tensor bias;            ///< undefined: none
};

/// Labels in place of the next tokens, and those that the model itself draws: for each token the id with the largest
/// logit − log(E), where E is an exponential number of a counter (kernels/label_draw.h).
struct LabelsDrawn {
  uint64_t key = 0;
  Tensor given_BT;  ///< int64: the loss is that of these; −100 without a target
  Tensor own_BT;    ///< int64: takes what is drawn, for all tokens but the last of each sequence
};

/// The sums of a microbatch.
struct Losses {
  Tensor loss_sum;        ///< cross entropy over all targets
  Tensor aux_sum, z_sum;  ///< undefined for dense models
  int64_t num_targets = 0;
  std::vector<Routed> routers;  ///< one for each sparse layer
};

/// Computes the losses of a microbatch.
/// @param tokens_BT  int64; each token's target is the next token of its sequence, the last has none.
/// @param end_of_document  the token after which a document ends, if data.attention_scope is "document".
/// @param first_sequence, step  as in Labels (parallel/stage.h).
/// @param labels  null: the next tokens.
Losses run_decoder(const RunConfig& config, const Parameters& parameters, const RouterMemory& memory,
                   const Tensor& tokens_BT, int64_t end_of_document, int64_t first_sequence, int64_t step,
                   const LabelsDrawn* labels = nullptr);

}  // namespace athanor::inline verify::portable

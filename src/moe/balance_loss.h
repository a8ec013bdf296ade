#pragma once
// The load-balancing loss: experts · Σ_e (share of choices)_e · (mean probability)_e, which is k, the number of
// choices of a token, at perfect balance.
//
// The three scopes differ in the tokens over which share and mean are taken. Each returns a sum over layers and
// sequences, to be scaled by coefficient / (layers · global sequences), so that one scale serves all.

#include <string>
#include <vector>

#include "moe/router.h"

namespace athanor::moe {

enum class AuxScope {
  kSequence,      ///< each sequence and layer separately: the layout cannot change it
  kGlobal,        ///< shares of the previous step's whole batch
  kTransformers,  ///< pooled over all layers and the microbatch, as `transformers` does
};

AuxScope parse_aux_scope(const std::string& name);

/// Returns the loss sum of a microbatch.
/// @param layers          routings of all layers of this microbatch.
/// @param tokens          tokens in a sequence.
/// @param previous_share  kGlobal: [layers, experts] choices of each expert per token in the previous step; uniform at
///        first.
Tensor balance_loss_sum(AuxScope scope, const std::vector<Routing>& layers, int64_t tokens,
                        const Tensor& previous_share);

}  // namespace athanor::moe

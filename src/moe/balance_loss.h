#pragma once
// The load-balancing loss: experts · Σ_e share_e · (mean probability)_e, where share_e is the number of choices of
// expert e for each token. So the shares add up to k, the number of choices of a token. The loss is k at perfect
// balance.
//
// The three scopes differ in the tokens over which share and mean are taken. Each returns a sum over layers and
// sequences, to be scaled by coefficient / (layers · sequences of the global batch), so that one scale serves all.

#include <string>
#include <vector>

#include "config/moe_config.h"
#include "moe/router.h"

namespace athanor::moe {

/// Returns the loss sum of a microbatch, a differentiable fp32 scalar.
/// @param layers          routings of the sparse layers for this microbatch, at least one.
/// @param tokens          tokens in a sequence.
/// @param previous_share  kGlobal: fp32 [layers, experts], the shares of the previous step; uniform at first. Not read
///                        otherwise.
Tensor balance_loss_sum(AuxScope scope, const std::vector<Routing>& layers, int64_t tokens,
                        const Tensor& previous_share);

/// Returns the z-loss sum of a microbatch over these layers, at least one: a differentiable fp32 scalar.
Tensor z_loss_sum(const std::vector<Routing>& layers);

}  // namespace athanor::moe

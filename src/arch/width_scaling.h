#pragma once
// How initial weights and learning rates follow the width of a model, so that a rate that was found with a small model
// holds for a wide one. Source: Yang et al. 2022, Tensor Programs V, table 3 (the form without multipliers of the
// output; tables 3 and 8 describe the same training).
//
// With r = optimizer.base_width / model.hidden_size, factors of the standard deviation and of the learning rate:
//
//   class    parameters                                 deviation   adamw   SGD   muon
//   input    embedding, positions, norms, biases         1           1       1/r   1
//   hidden   attention, feed-forward layers, experts    sqrt(r)     r       1     1 or sqrt(r)
//   output   output layer, routers                      r           r       r     r
//
// Muon's own matrices are the hidden ones. With muon_scale "keller_jordan" the norm of an update is sqrt(rows /
// columns), and the rate that of every width; with "moonshot" the norm is 0.2 sqrt(max(rows, columns)), which grows as
// the root of the width, and the rate falls as that. What Muon leaves to another optimizer has that optimizer's
// factors.
//
// A tied output layer is the embedding, and of class input. What it reads, the final norm, is then of class output, and
// begins with r instead of 1: the same logits as if the output were multiplied by r, with nothing but weights, which an
// export has too. Attention is scaled by 1/sqrt(head_dim), whatever the width: models that are compared have the
// head_dim, and more heads.

#include <string>

#include "arch/parameter.h"
#include "config/run_config.h"

namespace athanor::inline arch {

/// Returns r: base_width / hidden_size with optimizer.scaling "mup", and 1, which changes nothing, with "none".
double width_ratio(const OptimizerConfig& optimizer, const ModelConfig& model);

/// Returns the factor of the initial standard deviation, or of a norm's initial 1.
double initial_factor(WidthClass width, double ratio);

/// Returns the factor of the learning rate.
/// @param optimizer  the one that updates the parameter; its row (config/optimizer_table.h) has a rule, since
///                   config/checks.h refuses mup with others.
/// @param muon_scale  as in the configuration.
double rate_factor(const std::string& optimizer, MuonScale muon_scale, WidthClass width, double ratio);

}  // namespace athanor::inline arch

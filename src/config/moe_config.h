#pragma once
// The configuration section for Mixture-of-Experts layers: how tokens are routed, balanced and sent to experts.

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "base/combine_weights.h"
#include "config/fields.h"
#include "config/ranges.h"

namespace athanor::inline config {

/// What the balancing loss is computed over (moe/balance_loss.h).
enum class AuxScope {
  kSequence,      ///< each sequence and layer separately: the layout cannot change it
  kGlobal,        ///< as kSequence, with the shares of the previous step's whole batch
  kTransformers,  ///< pooled over all layers and the microbatch, as `transformers` does
};
template <>
inline constexpr auto kWords<AuxScope> = words<AuxScope>({{"sequence", AuxScope::kSequence},
                                                          {"global", AuxScope::kGlobal},
                                                          {"transformers", AuxScope::kTransformers}});

enum class Balance {
  kNone,           ///< dropless: every expert takes whatever comes
  kCapacity,       ///< an expert takes capacity_factor times its even share, the rest is dropped
  kSwipe,          ///< every expert gets the same number, by re-assignment (moe/swipe.cpp)
  kForcedUniform,  ///< forced uniform routing: one fixed pattern for every group, for measurements
};
template <>
inline constexpr auto kWords<Balance> = words<Balance>({{"none", Balance::kNone},
                                                        {"capacity", Balance::kCapacity},
                                                        {"swipe", Balance::kSwipe},
                                                        {"forced_uniform", Balance::kForcedUniform}});

/// True if what a rule makes of a group depends on what its tokens chose.
constexpr bool reads_choices(Balance rule) { return rule != Balance::kNone && rule != Balance::kForcedUniform; }
/// True if the experts' shares of a group are equal, so that their number must divide the group's choices.
constexpr bool needs_equal_shares(Balance rule) { return rule == Balance::kSwipe; }

/// The choices that an expert beyond its capacity keeps.
enum class CapacityOrder {
  kScore,     ///< those with the highest scores, of equal ones the earlier; a token may lose its place to a later one
  kPosition,  ///< those of the earliest tokens: no token depends on later ones
};
template <>
inline constexpr auto kWords<CapacityOrder> = words<CapacityOrder>({{"score", CapacityOrder::kScore},
                                                                    {"position", CapacityOrder::kPosition}});

template <>
inline constexpr auto kWords<CombineWeights> = words<CombineWeights>({{"after", CombineWeights::kAfterDown},
                                                                      {"before", CombineWeights::kBeforeDown}});

/// How tokens are sent to the ranks of their experts (moe/dispatch.h).
enum class DispatchKind {
  kAllGather,   ///< all tokens to all ranks; a reduce-scatter adds the partial sums
  kAllToAll,    ///< a token once to each rank that owns one of its experts, nothing to others
  kAllToAll2d,  ///< a token once to each node that needs it, and from there to the node's ranks
  kAuto,        ///< the kind that is measured as the fastest on the run's own shapes
};
template <>
inline constexpr auto kWords<DispatchKind> = words<DispatchKind>({{"allgather", DispatchKind::kAllGather},
                                                                  {"all_to_all", DispatchKind::kAllToAll},
                                                                  {"all_to_all_2d", DispatchKind::kAllToAll2d},
                                                                  {"auto", DispatchKind::kAuto}});

struct MoeConfig {
  double router_aux_loss_coef = 0.01;
  double router_z_loss_coef = 0.001;
  Choice<AuxScope> aux_scope = AuxScope::kSequence;
  double bias_update_rate = 0.0;
  double router_noise = 0.0;
  Choice<Balance> balance = Balance::kNone;
  int64_t balance_group = 1;
  double capacity_factor = 1.25;
  Choice<CapacityOrder> capacity_order = CapacityOrder::kScore;
  Choice<CombineWeights> combine_weights = CombineWeights::kAfterDown;
  Choice<DispatchKind> dispatch = DispatchKind::kAuto;
  int64_t dispatch_chunks = 0;

  void describe(Fields& f) {
    f.field("router_aux_loss_coef", router_aux_loss_coef, "weight of the load-balancing loss",
            zero_or_fp32_up_to(kMaxScale));
    f.field("router_z_loss_coef", router_z_loss_coef, "weight of the router z-loss", zero_or_fp32_up_to(kMaxScale));
    f.field("aux_scope", aux_scope,
            "what the load-balancing loss is computed over: each sequence and layer separately, the previous step's "
            "fractions, or all layers and the microbatch together as in `transformers`");
    f.field("bias_update_rate", bias_update_rate,
            "balancing without a loss: after each step an expert's bias, which is used only to choose experts, moves "
            "by this towards an even load (DeepSeek-V3 has 0.001); 0 turns it off",
            zero_or_fp32_up_to(kMaxScale));
    f.field("router_noise", router_noise,
            "standard deviation of noise on the logits by which experts are chosen, in training; 0 turns it off; inf: "
            "only noise chooses, as in a test of layouts",
            {fmt::format("0, inf, or a number from {:.3g} to {:.3g}, which fp32 holds", FLT_MIN, kMaxScale),
             [](const double& x) { return x == 0 || x == INFINITY || (x >= FLT_MIN && x <= kMaxScale); }});
    f.field("balance", balance,
            "how experts' loads are balanced in training, in addition to the loss: none (an expert takes all its "
            "tokens), capacity (the rest is dropped), swipe (exactly even, by re-assignment), forced_uniform (always "
            "the same pattern, for measurements)");
    f.field("balance_group", balance_group,
            "consecutive sequences of the global batch whose loads are balanced together; divides "
            "train.micro_batch_size, or is a multiple of it that spans data ranks",
            between(1, kMaxSequences));
    f.field("capacity_factor", capacity_factor, "capacity: an expert takes this times its even share", positive());
    f.field("capacity_order", capacity_order,
            "capacity: what a full expert keeps: the highest scores, or the earliest tokens (then no token depends on "
            "later ones)");
    f.field(
        "combine_weights", combine_weights,
        "the router's probability multiplies the output of an expert's down projection (after), or its input (before)");
    f.field("dispatch", dispatch, "how tokens are sent to the ranks of their experts");
    f.field("dispatch_chunks", dispatch_chunks,
            "tokens are sent in this many chunks, one while another is computed; 1: all at once; 0: the number that "
            "was measured as fastest, with dispatch auto, else 1",
            between(0, kMaxChunks));
  }
};

}  // namespace athanor::inline config

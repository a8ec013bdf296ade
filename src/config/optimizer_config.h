#pragma once
// The fields of [optimizer]: which optimizer updates which parameters, and with what settings.
//
// docs/optimizers.md has the formula of each optimizer and its source. checks.h refuses options of an optimizer that no
// parameter has.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "config/fields.h"
#include "config/optimizer_table.h"
#include "config/ranges.h"

namespace athanor::inline config {

inline constexpr double kMaxBeta = 0.9999999;  ///< 1 − 2^-24 is the next fp32 below 1

/// The form of the learning rate after warm-up (optim/schedule.h).
enum class LrSchedule { kCosine, kLinear, kConstant, kWsd, kInverseSqrt };
template <>
inline constexpr auto kWords<LrSchedule> = words<LrSchedule>({{"cosine", LrSchedule::kCosine},
                                                              {"linear", LrSchedule::kLinear},
                                                              {"constant", LrSchedule::kConstant},
                                                              {"wsd", LrSchedule::kWsd},
                                                              {"inverse_sqrt", LrSchedule::kInverseSqrt}});

/// How rates and initial weights follow the width of a model (arch/width_scaling.h).
enum class WidthScaling { kNone, kMup };
template <>
inline constexpr auto kWords<WidthScaling> = words<WidthScaling>({{"none", WidthScaling::kNone},
                                                                  {"mup", WidthScaling::kMup}});

/// The factor of Muon's orthogonal updates (optim/muon.h).
enum class MuonScale { kKellerJordan, kMoonshot };
template <>
inline constexpr auto kWords<MuonScale> = words<MuonScale>({{"keller_jordan", MuonScale::kKellerJordan},
                                                            {"moonshot", MuonScale::kMoonshot}});

/// Parameters with settings that differ from those of the run.
struct OptimizerGroupConfig {
  std::vector<std::string> match;
  std::string name;
  double lr = 0;
  double weight_decay = -1;

  void describe(Fields& f) {
    f.field("match", match,
            "what the group takes: names of parameters with * and ?, or roles (embedding, positions, norm, qk_norm, "
            "latent, query, key, "
            "value, attention_out, router, gate, up, down, expert_gate, expert_up, expert_down, bias, output)");
    std::vector<std::string> names = optimizer_names();
    names.insert(names.begin(), "");
    f.field("name", name, "which optimizer; \"\" takes the one that the parameters have without the group",
            one_of(names));
    f.field("lr", lr,
            "learning rate after warm-up, which follows the same schedule as optimizer.lr; 0 takes optimizer.lr",
            zero_or_fp32_up_to(kMaxFp32));
    f.field("weight_decay", weight_decay, "-1 takes optimizer.weight_decay", zero_minus_one_or_fp32_up_to(kMaxScale));
  }
};

struct OptimizerConfig {
  std::string name = "adamw";
  double lr = 4e-4;
  double min_lr = 4e-5;
  Choice<LrSchedule> schedule = LrSchedule::kCosine;
  int64_t warmup_steps = 100;  // kDefaultWarmupSteps
  int64_t decay_steps = 0;
  int64_t schedule_steps = 0;
  double schedule_tokens = 0;
  double warmup_tokens = 0;
  double decay_tokens = 0;
  std::vector<double> betas = {0.9, 0.99};
  double eps = 1e-8;
  double weight_decay = 0.1;
  std::vector<std::string> no_weight_decay = {};
  double max_grad_norm = 1.0;
  bool clip_after_warmup = false;
  Choice<WidthScaling> scaling = WidthScaling::kNone;
  int64_t base_width = 0;
  double momentum = 0.95;
  bool nesterov = true;
  double rho = 0.04;
  int64_t hessian_interval = 10;
  int64_t newton_schulz_steps = 5;
  std::vector<double> newton_schulz_coefficients = {3.4445, -4.7750, 2.0315};
  std::string newton_schulz_dtype = "bfloat16";
  Choice<MuonScale> muon_scale = MuonScale::kMoonshot;
  double qk_clip = 0;
  std::vector<OptimizerGroupConfig> groups = {};
  bool warmup_not_set = false;  ///< not a field: warmup_steps was derived; a resumed run keeps its own (defaults.h)

  void describe(Fields& f) {
    f.field("name", name,
            "which optimizer; muon updates the matrices of the layers, and adamw then the rest (embedding, output, "
            "norms, router)",
            one_of(optimizer_names()));
    f.field("lr", lr, "learning rate after warm-up", fp32_up_to(kMaxFp32));
    f.field("min_lr", min_lr, "learning rate at the last step; not set: 4e-05, or a tenth of lr if that is above lr",
            zero_or_fp32_up_to(kMaxFp32));
    f.field("schedule", schedule, "form of the learning rate from lr to min_lr after warm-up");
    f.field("warmup_steps", warmup_steps,
            "steps of linear warm-up from 0; not set: 100, or a tenth of the schedule's steps (in the first training "
            "phase) if that is less; a resumed run keeps the value that it began with",
            between(0, kMaxSteps));
    f.field("decay_steps", decay_steps, "wsd: steps of the final linear decay; 0 means a tenth of the schedule's",
            between(0, kMaxSteps));
    f.field("schedule_steps", schedule_steps,
            "steps of the schedule, at the last of which the learning rate is min_lr; a run may end before that, and a "
            "longer one keeps min_lr; 0: as many as the run or the training phase has",
            between(0, kMaxSteps));
    f.field("schedule_tokens", schedule_tokens,
            "the same counted in tokens seen; if it is set, so are warm-up and decay; 0: the schedule counts steps",
            whole_number_up_to(kMaxPlannedTokens));
    f.field("warmup_tokens", warmup_tokens,
            "with schedule_tokens: tokens of the linear warm-up; not set: a hundredth of schedule_tokens",
            whole_number_up_to(kMaxPlannedTokens));
    f.field("decay_tokens", decay_tokens,
            "with schedule_tokens, wsd: tokens of the final linear decay; 0 means a tenth of schedule_tokens",
            whole_number_up_to(kMaxPlannedTokens));
    f.field("betas", betas,
            "decay rates of the first and second moment (adamw, lamb), or of gradient and Hessian (sophiag)",
            {"two numbers from 0 to 0.9999999, since closer to 1 they are 1 in fp32", [](const std::vector<double>& b) {
               return b.size() == 2 && b[0] >= 0 && b[0] <= kMaxBeta && b[1] >= 0 && b[1] <= kMaxBeta;
             }});
    f.field("eps", eps, "added to the root of the second moment (adamw, lamb)", fp32_up_to(kMaxFp32));
    f.field("weight_decay", weight_decay, "decoupled; applied to all parameters but those of no_weight_decay",
            zero_or_fp32_up_to(kMaxScale));
    f.field("no_weight_decay", no_weight_decay, "names without weight decay, with * and ?: [\"*norm.weight\"]");
    f.field("max_grad_norm", max_grad_norm, "gradients are scaled down to this norm; 0 turns clipping off",
            zero_or_fp32_up_to(kMaxFp32));
    f.field("clip_after_warmup", clip_after_warmup, "clip only after the warm-up steps");
    f.field("scaling", scaling,
            "how learning rates and initial weights follow model.hidden_size: none (they are as given), or mup (by the "
            "role of each parameter, so that a rate that was found at base_width holds)");
    f.field("base_width", base_width,
            "mup: the model.hidden_size for which lr and model.initializer_range hold; 0: not set",
            between(0, kMaxWidth));
    f.field("momentum", momentum, "sgd and muon: the share of the last step's momentum that is kept",
            {"a number from 0 to below 1 (at most 0.9999999, since closer to 1 it is 1 in fp32)",
             [](const double& x) { return x >= 0 && x <= kMaxBeta; }});
    f.field("nesterov", nesterov, "sgd and muon: the update looks ahead by one more step of momentum");
    f.field(
        "rho", rho,
        "sophiag: the mean gradient is divided by rho times the Hessian, and clipped to 1; a larger rho clips fewer "
        "elements",
        fp32_up_to(kMaxScale));
    f.field("hessian_interval", hessian_interval,
            "sophiag: steps from one estimate of the Hessian to the next; each costs a further forward and backward",
            between(1, kMaxSteps));
    f.field("newton_schulz_steps", newton_schulz_steps, "muon: iterations that make an update orthogonal",
            between(int64_t{1}, int64_t{100}));
    f.field(
        "newton_schulz_coefficients", newton_schulz_coefficients,
        "muon: a, b and c of an iteration X <- a X + (b X X^T + c (X X^T)^2) X",
        {"three numbers from -1000 to 1000, not all 0, which would make no update", [](const std::vector<double>& x) {
           return x.size() == 3 && std::ranges::all_of(x, [](double c) { return std::abs(c) <= 1000; }) &&
                  std::ranges::any_of(x, [](double c) { return c != 0; });
         }});
    f.field("newton_schulz_dtype", newton_schulz_dtype, "muon: type of the products of the iterations; norms are fp64",
            one_type_of({"bfloat16", "float32"}));
    f.field("muon_scale", muon_scale,
            "muon: factor of the orthogonal update of a matrix [rows, columns]: keller_jordan sqrt(max(1, rows / "
            "columns)), moonshot 0.2 sqrt(max(rows, columns)), with which the rate is that of AdamW");
    f.field("qk_clip", qk_clip,
            "after an update, query and key weights of each head whose largest attention logit in the step was above "
            "this are scaled down to it (MuonClip has 100); 0 turns it off",
            zero_or_fp32_up_to(kMaxFp32));
    f.list("groups", groups, "Parameters with an optimizer, a rate or a decay that differs from the run's.");
  }
};

}  // namespace athanor::inline config

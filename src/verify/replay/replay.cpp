#include "verify/replay/replay.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "layout/width_groups.h"

namespace athanor::inline verify {
namespace {

ParameterGroup group_of_spec(const RunConfig& config, const ParameterSpec& spec) {
  return group_of(scaled_by_width(parameter_groups(config.optimizer), config), spec.name, spec.role);
}

}  // namespace

Replay::Replay(const RunConfig& config, const ParameterSpec& spec, const std::vector<float>& master)
    : master_(master.begin(), master.end()), bound_(master.size()), spec_(spec), config_(config.optimizer) {
  const ParameterGroup group = group_of_spec(config, spec);
  lr_scale_ = group.lr_scale;
  weight_decay_ = group.weight_decay;
}

// Small runs have no warm-up, in which clipping might be off.
void Replay::add_step(const ReplayedStep& step) {
  const double most = config_.max_grad_norm, scale = most > 0 ? std::min(1.0, most / (step.grad_norm + 1e-6)) : 1;
  std::vector<Rounded> grad(master_.size());
  for (size_t i = 0; i < std::min(grad.size(), step.grad.size()); ++i) {
    grad[i].value = step.grad[i] * scale;
    grad[i].error = 2 * kUnit * std::abs(grad[i].value);
  }
  update(step, step.lr * lr_scale_, grad);
}

// The rounded 1 − beta is off by a unit at most, and the difference, the product and the sum are rounded.
void Replay::add_to_mean(double beta, const Rounded& x, Rounded& mean) {
  const double rest = 1 - beta, difference = x.value - mean.value;
  mean.value += rest * difference;
  mean.error =
      beta * mean.error + rest * x.error + kUnit * ((1 + 2 * rest) * std::abs(difference) + std::abs(mean.value));
}

// The factor 1 − lr · decay and its product are rounded; so is the difference, and a master in halves moves by one bit
// (kernels/master.h), which is two units. In lr · decay and in lr · direction every factor and the product is rounded.
void Replay::move(size_t element, double lr, double decay, const Rounded& direction) {
  double& master = master_[element];
  const double before = master, keep = 1 - lr * decay, step = lr * direction.value;
  master = before * keep - step;
  bound_[element] = std::abs(keep) * bound_[element] + lr * direction.error +
                    kUnit * ((2 + 3 * lr * decay) * std::abs(before) + 3 * std::abs(master) + 2 * std::abs(step));
}

// Each is in the file of its optimizer.
using MakeReplay = std::unique_ptr<Replay>(const RunConfig& config, const ParameterSpec& spec,
                                           const std::vector<float>& master);
MakeReplay make_adamw_replay, make_sgd_replay, make_lamb_replay, make_sophiag_replay, make_muon_replay;

namespace {

struct ReplayOf {
  const char* optimizer;
  MakeReplay* make;
};

constexpr ReplayOf kReplays[] = {{"adamw", make_adamw_replay},
                                 {"sgd", make_sgd_replay},
                                 {"lamb", make_lamb_replay},
                                 {"sophiag", make_sophiag_replay},
                                 {"muon", make_muon_replay}};

}  // namespace

std::unique_ptr<Replay> make_replay(const RunConfig& config, const ParameterSpec& spec,
                                    const std::vector<float>& master) {
  if (config.optimizer.qk_clip > 0 && (spec.role == Role::kQuery || spec.role == Role::kKey)) return nullptr;
  const std::string name = group_of_spec(config, spec).optimizer;
  const auto* const found =
      std::ranges::find(kReplays, name, [](const ReplayOf& each) { return std::string(each.optimizer); });
  if (found != std::end(kReplays)) return found->make(config, spec, master);
  fail<Error>("bug: no replay of optimizer {}", name);
}

}  // namespace athanor::inline verify

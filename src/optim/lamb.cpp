#include "optim/lamb.h"

#include <algorithm>
#include <cmath>

#include "optim/optimizer_set.h"

namespace athanor::inline optim {

Lamb::Lamb(const OptimizerConfig& config, OptimizedParameters parameters, const TensorSums& sums, const ShardPlan& plan)
    : Optimizer(declare_optimizer("lamb"), std::move(parameters)), beta1_(config.betas[0]), beta2_(config.betas[1]),
      eps_(config.eps), sums_(sums), plan_(plan) {}

void Lamb::begin(const Update& given) {
  find_rules();
  const Tensor& grad = parameters().store().grad();
  const Tensor squares = at::zeros({sums_.num_matrices(), 2}, grad.options().dtype(at::kDouble));
  kernels::LambStep step{};
  step.eps = static_cast<float>(eps_), step.beta1 = beta1_, step.beta2 = beta2_;
  step.grad_scale = static_cast<float>(given.grad_scale);
  for (const Rule& rule : rules_) {
    const auto updates = static_cast<double>(given.step - rule.settings.since);
    step.weight_decay = static_cast<float>(rule.settings.weight_decay);
    step.bias_correction1 = static_cast<float>(1 - std::pow(beta1_, updates));
    step.bias_correction2 = static_cast<float>(1 - std::pow(beta2_, updates));
    ops::lamb_directions(step, rule.parts, parameters().all_memory(), state("exp_avg"), state("exp_avg_sq"), squares,
                         given.on_device);
  }
  sums_.add_up(squares);
  const Tensor ratios = (squares.select(1, 0) / squares.select(1, 1)).sqrt();
  ratios_ = at::where(squares.gt(0).all(1), ratios, at::ones({}, ratios.options())).to(at::kFloat);
}

// The parts are found anew in each update, since a segment's age may change; they are sent to a device if they have.
void Lamb::find_rules() {
  std::vector<std::pair<OptimizedParameters::Segment, std::vector<kernels::MatrixPart>>> found;
  for (const Bucket& bucket : parameters().store().buckets()) {
    parameters().for_each_owned(bucket.range, [&](const auto& segment, FlatRange owned, int64_t begin) {
      const auto parts = parts_of(bucket, owned, begin);
      if (parts.empty()) return;  // this rank owns padding alone
      auto it = std::ranges::find_if(found, [&](const auto& rule) { return rule.first.has_settings_of(segment); });
      if (it == found.end()) it = found.insert(it, {segment, {}});
      it->second.insert(it->second.end(), parts.begin(), parts.end());
    });
  }
  const auto is_as_before = [](const auto& now, const Rule& rule) {
    return now.first.has_settings_of(rule.settings) && now.second == rule.parts.parts();
  };
  if (std::ranges::equal(found, rules_, is_as_before)) return;
  rules_.clear();
  const at::Device device = parameters().store().grad().device();
  for (auto& [settings, parts] : found) rules_.push_back({settings, ops::MatrixParts(std::move(parts), device)});
}

// Pieces of one matrix, each within what this rank counts of the bucket or without.
std::vector<kernels::MatrixPart> Lamb::parts_of(const Bucket& bucket, FlatRange owned, int64_t state_begin) const {
  std::vector<kernels::MatrixPart> parts;
  const FlatRange counted = plan_.canonical(bucket);
  const ParameterStore& store = parameters().store();
  sums_.for_each_matrix(owned, [&](const BucketEntry&, int64_t matrix, FlatRange piece) {
    const auto add = [&](FlatRange part, bool is_counted) {
      if (part.size() <= 0) return;
      parts.push_back({part.begin, part.size(), store.state_begin(part), state_begin + part.begin - owned.begin, matrix,
                       is_counted});
    };
    const FlatRange inside = intersect(piece, counted);
    if (inside.size() <= 0) return add(piece, false);
    add({piece.begin, inside.begin}, false);
    add(inside, true);
    add({inside.end, piece.end}, false);
  });
  return parts;
}

int64_t Lamb::apply(const Update& given, FlatRange range) {
  int64_t changed = 0;
  for (const Rule& rule : rules_) {
    changed += ops::apply_lamb(given.lr * rule.settings.lr_scale, ratios_, rule.parts, range.begin, range.end,
                               parameters().all_memory(), given.on_device);
  }
  return changed;
}

std::unique_ptr<Optimizer> make_lamb(const OptimizerConfig& config, OptimizedParameters parameters,
                                     const OptimizerServices& services) {
  return std::make_unique<Lamb>(config, std::move(parameters), *services.sums, *services.plan);
}

}  // namespace athanor::inline optim

#include "optim/gradient_norm.h"

#include <algorithm>
#include <cmath>

#include "ops/sum_of_squares.h"

namespace athanor::inline optim {
namespace {

// This rank's canonical parts of the buckets of experts, or of all others.
std::vector<FlatRange> canonical_ranges(const ParameterStore& parameters, const ShardPlan& plan, bool experts) {
  std::vector<FlatRange> ranges;
  for (const Bucket& bucket : parameters.buckets()) {
    if (bucket.replication.is_expert() == experts) ranges.push_back(plan.canonical(bucket));
  }
  return ranges;
}

// Returns this rank's sums of squares, [2], as [data ranks, 2] with those of all ranks.
Tensor gather_squares(const Tensor& own, const ShardPlan& plan) {
  plan.mesh().group(GroupKind::kModel).all_reduce(own).wait();
  comm::Communicator& data = plan.mesh().group(GroupKind::kData);
  const Tensor all = at::empty({data.size(), 2}, own.options());
  data.all_gather(all, own).wait();
  return all;
}

}  // namespace

GradientSquares gradient_squares(const ParameterStore& parameters, const ShardPlan& plan) {
  const Tensor& grad = parameters.grad();
  if (plan.is_trivial()) return {ops::square_root(ops::sum_of_squares(grad)), {}};
  const auto of = [&](bool experts) {
    std::vector<Tensor> parts;
    for (const FlatRange& range : canonical_ranges(parameters, plan, experts))
      if (range.size() > 0) parts.push_back(grad.narrow(0, range.begin, range.size()));
    return parts.empty() ? at::zeros({}, grad.options().dtype(at::kDouble)) : ops::sum_of_squares(parts);
  };
  const Tensor all = gather_squares(at::stack({of(false), of(true)}), plan);
  return {ops::square_root(ops::sum_by_rows(all)), all};
}

RankNorms norms_by_rank(const GradientSquares& squares, const ShardPlan& plan) {
  RankNorms norms;
  if (!squares.of_ranks.defined()) return norms;
  const auto square = squares.of_ranks.accessor<double, 2>();
  const Layout& layout = plan.mesh().layout();
  const comm::Communicator& data = plan.mesh().group(GroupKind::kData);
  if (layout.expert() > 1) norms.experts.resize(static_cast<size_t>(layout.expert()));
  for (int i = 0; i < data.size(); ++i) {
    norms.ranks.push_back(std::sqrt(square[i][0] + square[i][1]));
    if (norms.experts.empty()) continue;
    const int world_rank = data.options().world_ranks[static_cast<size_t>(i)];
    norms.experts[static_cast<size_t>(layout.coordinate(world_rank, Axis::kExpert))] += square[i][1];
  }
  for (double& norm : norms.experts) norm = std::sqrt(norm);
  return norms;
}

double RankNorms::imbalance(const std::vector<double>& norms) {
  if (norms.empty()) return 1;
  const auto [least, most] = std::ranges::minmax(norms);
  return least == most ? 1 : most / least;
}

namespace {

constexpr double kEpsilon = 1e-6;  // as torch's clip_grad_norm_, so that a zero gradient divides nothing by zero

bool clips(const OptimizerConfig& config, bool warming_up) {
  return config.max_grad_norm != 0 && !(config.clip_after_warmup && warming_up);
}

}  // namespace

double clip_scale(const OptimizerConfig& config, double grad_norm, bool warming_up) {
  if (!clips(config, warming_up)) return 1;
  return std::min(1.0, config.max_grad_norm / (grad_norm + kEpsilon));
}

Tensor clip_scale(const OptimizerConfig& config, const Tensor& grad_norm, bool warming_up) {
  if (!clips(config, warming_up)) return at::ones_like(grad_norm);
  return at::full_like(grad_norm, config.max_grad_norm).div(grad_norm + kEpsilon).clamp_max(1);
}

}  // namespace athanor::inline optim

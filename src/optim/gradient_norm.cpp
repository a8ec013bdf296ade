#include "optim/gradient_norm.h"

#include <cmath>

#include "kernels/adamw.h"
#include "ops/adamw.h"

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

}  // namespace

double sum_of_squares(const Tensor& flat_grad, std::span<const FlatRange> ranges) {
  constexpr int64_t kBlock = int64_t{1} << 18;  // 1 MiB of fp32: fits a core's cache, leaves threads enough blocks
  std::vector<FlatRange> blocks;
  for (const FlatRange& range : ranges) {
    for (int64_t at = range.begin; at < range.end; at += kBlock)
      blocks.push_back({at, std::min(range.end, at + kBlock)});
  }
  const auto* grad = flat_grad.const_data_ptr<float>();
  std::vector<double> sums(blocks.size());
  at::parallel_for(0, static_cast<int64_t>(blocks.size()), 1, [&](int64_t begin, int64_t end) {
    for (auto b = static_cast<size_t>(begin); b < static_cast<size_t>(end); ++b)
      sums[b] = kernels::sum_of_squares(grad + blocks[b].begin, blocks[b].size());
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

double gradient_norm(const Tensor& flat_grad) {
  const FlatRange all{0, flat_grad.numel()};
  return std::sqrt(sum_of_squares(flat_grad, {&all, 1}));
}

GradientNorms norms_of(const Tensor& squares, const ShardPlan& plan) {
  const auto square = squares.accessor<double, 2>();
  const Layout& layout = plan.mesh().layout();
  const comm::Communicator& data = plan.mesh().group(GroupKind::kData);
  GradientNorms norms;
  if (layout.expert() > 1) norms.experts.resize(static_cast<size_t>(layout.expert()));
  for (int i = 0; i < data.size(); ++i) {
    norms.ranks.push_back(std::sqrt(square[i][0] + square[i][1]));
    norms.total += square[i][0] + square[i][1];
    if (norms.experts.empty()) continue;
    const int world_rank = data.options().world_ranks[static_cast<size_t>(i)];
    norms.experts[static_cast<size_t>(layout.coordinate(world_rank, Axis::kExpert))] += square[i][1];
  }
  norms.total = std::sqrt(norms.total);
  for (double& norm : norms.experts) norm = std::sqrt(norm);
  return norms;
}

namespace {

// Returns this rank's sums of squares, [2], as [data ranks, 2] with those of all ranks.
Tensor gather_squares(const Tensor& own, const ShardPlan& plan) {
  plan.mesh().group(GroupKind::kModel).all_reduce(own).wait();
  comm::Communicator& data = plan.mesh().group(GroupKind::kData);
  const Tensor all = at::empty({data.size(), 2}, own.options());
  data.all_gather(all, own).wait();
  return all;
}

Tensor sum_of_squares_on_device(const Tensor& grad, const std::vector<FlatRange>& ranges) {
  std::vector<Tensor> sums = {at::zeros({}, grad.options().dtype(at::kDouble))};
  for (const FlatRange& range : ranges)
    if (range.size() > 0) sums.push_back(ops::sum_of_squares(grad.narrow(0, range.begin, range.size())).reshape({}));
  return at::stack(sums).sum();
}

}  // namespace

GradientNorms gradient_norms(const ParameterStore& parameters, const ShardPlan& plan) {
  if (plan.is_trivial()) return {gradient_norm(parameters.grad()), {}, {}};
  const Tensor own = at::tensor({sum_of_squares(parameters.grad(), canonical_ranges(parameters, plan, false)),
                                 sum_of_squares(parameters.grad(), canonical_ranges(parameters, plan, true))},
                                at::kDouble);
  return norms_of(gather_squares(own, plan), plan);
}

GradientNormsOnDevice gradient_norms_on_device(const ParameterStore& parameters, const ShardPlan& plan) {
  if (plan.is_trivial()) return {ops::sum_of_squares(parameters.grad()).sqrt(), {}};
  const auto of = [&](bool experts) {
    return sum_of_squares_on_device(parameters.grad(), canonical_ranges(parameters, plan, experts));
  };
  const Tensor all = gather_squares(at::stack({of(false), of(true)}), plan);
  return {all.sum().sqrt(), all};
}

double RankNorms::imbalance(const std::vector<double>& norms) {
  if (norms.empty()) return 1;
  const auto [least, most] = std::ranges::minmax(norms);
  return least == most ? 1 : most / least;
}

}  // namespace athanor::inline optim

#include "optim/gradient_norm.h"

#include <cmath>

#include "kernels/adamw.h"

namespace athanor {
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

GradientNorms gradient_norms(const ParameterStore& parameters, const ShardPlan& plan) {
  if (plan.is_trivial()) return {gradient_norm(parameters.grad()), {}, {}};
  const Tensor own = at::tensor({sum_of_squares(parameters.grad(), canonical_ranges(parameters, plan, false)),
                                 sum_of_squares(parameters.grad(), canonical_ranges(parameters, plan, true))},
                                at::kDouble);
  plan.mesh().group(GroupKind::kModel).all_reduce(own).wait();
  comm::Communicator& data = plan.mesh().group(GroupKind::kData);
  const Tensor all = at::empty({data.size(), 2}, at::kDouble);
  data.all_gather(all, own).wait();
  const auto square = all.accessor<double, 2>();
  const Layout& layout = plan.mesh().layout();
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

}  // namespace athanor

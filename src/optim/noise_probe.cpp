#include "optim/noise_probe.h"

#include "ops/sum_of_squares.h"

namespace athanor::inline optim {
namespace {

constexpr int kParts = 0, kWhole = 1;  // columns

int64_t num_parts(const Layout& layout, bool experts) {
  if (layout.data() == 1) return layout.microbatches();
  return experts ? layout.expert_data() : layout.data();
}

}  // namespace

NoiseProbe::NoiseProbe(const ParameterStore& parameters, const ShardPlan& plan)
    : parameters_(parameters), plan_(plan),
      squares_(at::zeros({2, 2}, parameters.grad().options().dtype(at::kDouble))) {}

bool NoiseProbe::counts(const Bucket& bucket) const {
  const GroupPlan& plan = plan_.of(bucket);
  const bool adds = plan.replicas && plan.replicas_add;
  return plan.is_canonical() && !adds && num_parts(plan_.mesh().layout(), bucket.replication.is_expert()) > 1;
}

void NoiseProbe::add_squares(FlatRange range, bool experts, int column) {
  if (range.size() == 0) return;
  const Tensor sum = squares_.select(0, experts ? 1 : 0).select(0, column);
  sum.add_(ops::sum_of_squares(parameters_.grad().narrow(0, range.begin, range.size())));
}

void NoiseProbe::add(const Bucket& bucket) {
  if (over_data_ranks() && counts(bucket)) add_squares(bucket.range, bucket.replication.is_expert(), kParts);
}

void NoiseProbe::add_first_microbatch() {
  for (const Bucket& bucket : parameters_.buckets())
    if (counts(bucket)) add_squares(bucket.range, bucket.replication.is_expert(), kParts);
  squares_.select(1, kParts).mul_(static_cast<double>(plan_.mesh().layout().microbatches()));
}

Tensor NoiseProbe::finish() {
  for (const Bucket& bucket : parameters_.buckets())
    if (counts(bucket)) add_squares(plan_.canonical(bucket), bucket.replication.is_expert(), kWhole);
  if (plan_.is_trivial()) return squares_;
  plan_.mesh().group(GroupKind::kModel).all_reduce(squares_).wait();
  plan_.mesh().group(GroupKind::kData).all_reduce(squares_).wait();
  return squares_;
}

std::vector<PartSquares> part_squares(const Tensor& squares, const ShardPlan& plan) {
  const auto square = squares.accessor<double, 2>();
  const Layout& layout = plan.mesh().layout();
  return {{num_parts(layout, false), square[0][kParts], square[0][kWhole]},
          {num_parts(layout, true), square[1][kParts], square[1][kWhole]}};
}

}  // namespace athanor::inline optim

#include "parallel/planted_faults.h"

#include "base/fault.h"

namespace athanor {
namespace {

// What reaches the sum is the first rank's gradient alone.
void lose_others(const Tensor& values, const GroupPlan& plan) {
  if (plan.sum->rank() != 0) values.zero_();
}

}  // namespace

void plant_before_reduction(const Bucket& bucket, const Tensor& values, const ShardPlan& plan,
                            const std::vector<BucketEntry>& table) {
  const GroupPlan& group = plan.of(bucket);
  const bool holds_first = bucket.range.begin == 0, holds_last = bucket.range.end >= table.back().flat_end;
  if (holds_first && fault_planted("grad.missing_reduction")) lose_others(values, group);
  if (holds_first && fault_planted("grad.doubled_reduction")) group.sum->all_reduce(values).wait();
  if (holds_last && fault_planted("grad.wrong_scale")) values.div_(static_cast<double>(group.sum->size()));
  if (bucket.group == "expert" && fault_planted("grad.wrong_group"))
    plan.mesh().group(GroupKind::kExpert).all_reduce(values).wait();
  for (const BucketEntry& entry : table) {
    const FlatRange held = intersect(entry.range(), bucket.range);
    if (held.size() > 0 && entry.name.ends_with("mlp.gate.weight") && fault_planted("grad.router_unsynchronised"))
      lose_others(values.narrow(0, held.begin - bucket.range.begin, held.size()), group);
  }
}

bool plant_instead_of_adding(const Bucket& bucket) {
  return (bucket.group == "partial" && fault_planted("sequence.norm_unsynchronised")) ||
         (bucket.group == "tied" && fault_planted("pipeline.tied_once"));
}

}  // namespace athanor

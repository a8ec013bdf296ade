// Faults in the reductions of a step: observers that change a bucket before or after it is reduced.

#include <map>
#include <utility>

#include "verify/plants/rows.h"

namespace athanor::inline verify::plants {
namespace {

using Phase = Observation::Phase;

// Calls act(bucket, phase, values) for each bucket before and after it is reduced.
template <class Act>
class BucketFault : public Observer {
 public:
  BucketFault(const ParameterStore& parameters, Act act) : act_(std::move(act)) {
    for (const Bucket& bucket : parameters.buckets()) buckets_[bucket_place(parameters, bucket)] = &bucket;
  }
  void observe(const Observation& o) override {
    if (const auto found = buckets_.find(o.place); found != buckets_.end()) act_(*found->second, o.phase, o.tensor);
  }

 private:
  std::map<std::string, const Bucket*, std::less<>> buckets_;
  Act act_;
};

template <class Act>
void add_bucket_fault(TrainState& state, Act act) {
  state.observers.add(std::make_shared<BucketFault<Act>>(state.model.parameters, std::move(act)));
}

// Changes a bucket before it is summed. Returns whether it did.
using Change = bool (*)(const TrainState& state, const Bucket& bucket, const Tensor& values);

class BeforeReduction : public Plant {
 public:
  explicit BeforeReduction(Change change) : change_(change) {}
  void watch(TrainState& state) override {
    add_bucket_fault(state, [this, &state](const Bucket& bucket, Phase phase, const Tensor& values) {
      if (phase == Phase::kReduce) count(change_(state, bucket, values));
    });
  }

 private:
  Change change_;
};

// Only the first rank's gradient reaches the sum.
bool lose_others(const Tensor& values, const comm::Communicator& ranks) {
  if (ranks.rank() != 0) values.zero_();
  return ranks.size() > 1;
}

bool is_first(const Bucket& bucket) { return bucket.range.begin == 0; }
bool is_last(const TrainState& s, const Bucket& bucket) {
  return bucket.range.end >= s.model.parameters.table().back().flat_end;
}

bool lose_first_bucket(const TrainState& s, const Bucket& bucket, const Tensor& values) {
  return is_first(bucket) && lose_others(values, *s.model.plan.of(bucket).sum);
}

bool sum_first_bucket_twice(const TrainState& s, const Bucket& bucket, const Tensor& values) {
  comm::Communicator& ranks = *s.model.plan.of(bucket).sum;
  if (!is_first(bucket) || ranks.size() == 1) return false;
  ranks.all_reduce(values).wait();
  return true;
}

bool average_last_bucket(const TrainState& s, const Bucket& bucket, const Tensor& values) {
  const int ranks = s.model.plan.of(bucket).sum->size();
  if (!is_last(s, bucket) || ranks == 1) return false;
  values.div_(static_cast<double>(ranks));
  return true;
}

bool sum_experts_over_others(const TrainState& s, const Bucket& bucket, const Tensor& values) {
  comm::Communicator& ranks = s.model.mesh.group(GroupKind::kExpert);
  if (!bucket.replication.is_expert() || ranks.size() == 1) return false;
  ranks.all_reduce(values).wait();
  return true;
}

bool lose_routers(const TrainState& s, const Bucket& bucket, const Tensor& values) {
  bool lost = false;
  for (const BucketEntry& entry : s.model.parameters.table()) {
    const FlatRange held = intersect(entry.range(), bucket.range);
    if (held.size() == 0 || entry.role != Role::kRouter) continue;
    lost |= lose_others(values.narrow(0, held.begin - bucket.range.begin, held.size()), *s.model.plan.of(bucket).sum);
  }
  return lost;
}

// The sum over a replica group is left out: each of its ranks keeps its part.
class NotAddedOverReplicas : public Plant {
 public:
  explicit NotAddedOverReplicas(Replication replication) : replication_(replication) {}
  void watch(TrainState& state) override {
    add_bucket_fault(state, [this](const Bucket& bucket, Phase phase, const Tensor& values) {
      if (bucket.replication != replication_) return;
      if (phase == Phase::kReduced) own_[&bucket] = values.clone();
      if (phase != Phase::kAddedOverReplicas) return;
      values.copy_(own_.at(&bucket));
      count(true);
    });
  }

 private:
  Replication replication_;
  std::map<const Bucket*, Tensor> own_;
};

// Simulates messages of one sum that are taken for those of another.
class CrossedBuckets : public Plant {
 public:
  void watch(TrainState& state) override {
    add_bucket_fault(state, [this, &state](const Bucket& bucket, Phase phase, const Tensor& values) {
      if (phase == Phase::kReduce) waiting_.clear();
      if (phase == Phase::kReduced && !state.model.plan.of(bucket).replicas) cross(bucket, values);
    });
  }

 private:
  void cross(const Bucket& bucket, const Tensor& values) {
    const std::pair key{bucket.replication, bucket.range.size()};
    const auto other = waiting_.find(key);
    if (other == waiting_.end()) {
      waiting_[key] = values;
      return;
    }
    const Tensor first = other->second.clone();
    other->second.copy_(values);
    values.copy_(first);
    waiting_.erase(other);
    count(true);
  }

  std::map<std::pair<Replication, int64_t>, Tensor> waiting_;
};

}  // namespace

std::vector<Row> gradient_plants() {
  return {
      {"grad.crossed_buckets", make_of<CrossedBuckets>},
      {"grad.doubled_reduction", make_of<BeforeReduction, sum_first_bucket_twice>},
      {"grad.missing_reduction", make_of<BeforeReduction, lose_first_bucket>},
      {"grad.router_unsynchronised", make_of<BeforeReduction, lose_routers>},
      {"grad.wrong_group", make_of<BeforeReduction, sum_experts_over_others>},
      {"grad.wrong_scale", make_of<BeforeReduction, average_last_bucket>},
      {"pipeline.tied_once", make_of<NotAddedOverReplicas, Replication::kTied>},
      {"sequence.norm_unsynchronised", make_of<NotAddedOverReplicas, Replication::kPartial>},
  };
}

}  // namespace athanor::inline verify::plants

#include "parallel/gradient_reducer.h"

#include "comm/watches.h"

namespace athanor::inline parallel {
namespace {

Tensor slice(const Tensor& flat, FlatRange range) { return flat.narrow(0, range.begin, range.size()); }

FlatRange within(FlatRange range, const Bucket& bucket) {
  return {range.begin - bucket.range.begin, range.end - bucket.range.begin};
}

}  // namespace

std::string bucket_place(const ParameterStore& parameters, const Bucket& bucket) {
  const auto number = &bucket - parameters.buckets().data();
  ATHANOR_ASSERT(number >= 0 && number < std::ssize(parameters.buckets()));
  return "buckets." + std::to_string(number) + "." + bucket.replication.name();
}

GradientReducer::GradientReducer(const ParameterStore& parameters, const ShardPlan& plan, at::ScalarType reduce_type,
                                 const Observers* observers)
    : parameters_(parameters), plan_(plan), type_(reduce_type), observers_(observers),
      left_(parameters.buckets().size()), clock_(parameters.compute().device()) {}

void GradientReducer::tell(const Bucket& bucket, Observation::Phase phase, const Tensor& values) const {
  if (!observers_ || observers_->empty()) return;
  const std::string place = bucket_place(parameters_, bucket);
  observers_->tell({place, phase, Observation::kAllMicrobatches, values});
}

Tensor GradientReducer::owned_values(const InFlight& flight) const {
  return slice(flight.values, within(plan_.owned(*flight.bucket), *flight.bucket));
}

void GradientReducer::ready(int64_t forward_index) {
  if (plan_.is_trivial()) return;
  if (left_ == parameters_.buckets().size()) clock_.begin();
  while (left_ > 0 && parameters_.buckets()[left_ - 1].first_forward_index >= forward_index)
    start(parameters_.buckets()[--left_]);
}

void GradientReducer::start(const Bucket& bucket) {
  const comm::SendsFor purpose(TrafficPurpose::kGradients);
  if (bucket_observer_) bucket_observer_->before_sum(bucket);
  const GroupPlan& plan = plan_.of(bucket);
  const Tensor gradient = slice(parameters_.grad(), bucket.range);
  const bool travels = plan.sum->size() > 1 || plan.replicas;
  InFlight flight{&bucket, travels ? gradient.to(type_) : gradient, {}};
  tell(bucket, Observation::Phase::kReduce, flight.values);
  if (plan.scatter) {
    const FlatRange part = within(part_of(bucket.range, plan.scatter->size(), plan.scatter->rank()), bucket);
    flight.pending = plan.scatter->reduce_scatter(slice(flight.values, part), flight.values);
  } else {
    flight.pending = plan.sum->all_reduce(flight.values);
  }
  clock_.add(flight.pending, static_cast<int64_t>(flight.values.nbytes()));
  in_flight_.push_back(std::move(flight));
}

void GradientReducer::start_second(InFlight& flight) {
  const comm::SendsFor purpose(TrafficPurpose::kGradients);
  const GroupPlan& plan = plan_.of(*flight.bucket);
  const Tensor owned = owned_values(flight);
  if (plan.second == ShardRule::Second::kAllGather)
    flight.pending =
        plan.copies->all_gather(owned, slice(flight.values, within(plan_.part(*flight.bucket), *flight.bucket)));
  if (plan.second == ShardRule::Second::kAllReduce) flight.pending = plan.copies->all_reduce(owned);
}

void GradientReducer::start_over_replicas(InFlight& flight) {
  const comm::SendsFor purpose(TrafficPurpose::kGradients);
  const GroupPlan& plan = plan_.of(*flight.bucket);
  tell(*flight.bucket, Observation::Phase::kReduced, owned_values(flight));
  if (!plan.replicas) return;
  const Tensor owned = owned_values(flight);
  flight.pending = plan.replicas_add ? plan.replicas->all_reduce(owned) : plan.replicas->broadcast(owned, 0);
}

void GradientReducer::keep_owned(const InFlight& flight) {
  const FlatRange owned = plan_.owned(*flight.bucket);
  if (plan_.of(*flight.bucket).replicas)
    tell(*flight.bucket, Observation::Phase::kAddedOverReplicas, owned_values(flight));
  if (flight.values.scalar_type() != at::kFloat)
    slice(parameters_.grad(), owned).copy_(slice(flight.values, within(owned, *flight.bucket)));
  slice(parameters_.grad(), {flight.bucket->range.begin, owned.begin}).zero_();
  slice(parameters_.grad(), {owned.end, flight.bucket->range.end}).zero_();
}

void GradientReducer::finish() {
  if (plan_.is_trivial()) return;
  clock_.end_backward();
  ready(0);
  for (InFlight& flight : in_flight_) {
    flight.pending.wait();
    start_second(flight);
  }
  for (InFlight& flight : in_flight_) {
    flight.pending.wait();
    start_over_replicas(flight);
  }
  for (InFlight& flight : in_flight_) {
    flight.pending.wait();
    keep_owned(flight);
  }
  in_flight_.clear();
  left_ = parameters_.buckets().size();
}

}  // namespace athanor::inline parallel

#include "parallel/weight_gatherer.h"

#include <limits>

#include "comm/watches.h"

namespace athanor::inline parallel {

void WeightGatherer::start(const Bucket& bucket) {
  comm::Communicator* ranks = plan_.of(bucket).gather;
  if (!ranks || ranks->size() == 1) return;
  const comm::SendsFor purpose(TrafficPurpose::kWeights);
  const auto slice = [&](FlatRange range) { return parameters_.compute().narrow(0, range.begin, range.size()); };
  in_flight_.push_back(
      {bucket.first_forward_index, ranks->all_gather(slice(bucket.range), slice(plan_.owned(bucket)))});
}

void WeightGatherer::wait(int64_t forward_index) {
  std::erase_if(in_flight_, [&](InFlight& flight) {
    if (flight.first_forward_index > forward_index) return false;
    flight.pending.wait();
    return true;
  });
}

void WeightGatherer::wait_all() { wait(std::numeric_limits<int64_t>::max()); }

}  // namespace athanor::inline parallel

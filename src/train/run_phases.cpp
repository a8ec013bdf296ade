#include "train/run_phases.h"

#include <utility>

#include "base/wall_clock.h"
#include "ops/tensor.h"

namespace athanor::inline train {
namespace {

// The part of a phase's computation, and of its waits for other ranks.
std::pair<TimePart, TimePart> parts_of(board::Phase phase) {
  switch (phase) {
    case board::Phase::kData: return {kDataTime, kDataTime};
    case board::Phase::kForward: return {kForwardCompute, kForwardComm};
    case board::Phase::kBackward:
    case board::Phase::kReduce: return {kBackwardCompute, kBackwardComm};
    case board::Phase::kUpdate:
    case board::Phase::kGather: return {kOptimizerCompute, kOptimizerComm};
    case board::Phase::kSave: return {kSaveTime, kSaveTime};
    case board::Phase::kValidate:
    case board::Phase::kEvaluate: return {kEvaluationTime, kEvaluationTime};
    case board::Phase::kStart:
    case board::Phase::kIdle: break;
  }
  return {kOtherTime, kOtherTime};
}

}  // namespace

void PhaseTimes::add() {
  const auto now = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(now - since_).count();
  const double waited_s = mesh_.waited_s(), waited = waited_s - waited_s_;
  const auto [compute, comm] = parts_of(phase_);
  seconds_[compute] += seconds - waited;
  seconds_[comm] += waited;
  since_ = now;
  waited_s_ = waited_s;
}

void PhaseTimes::enter(board::Phase phase) {
  add();
  phase_ = phase;
}

std::array<double, kNumTimeParts> PhaseTimes::take() {
  add();
  return std::exchange(seconds_, {});
}

std::optional<RankTimes> RankTimesGatherer::took_step() {
  comm::Communicator& world = mesh_.host_group(GroupKind::kWorld);
  if (world.size() == 1 || ++num_steps_ < kSteps) return {};
  const std::array<double, kNumTimeParts> seconds = times_.take();
  const Tensor own = at::empty({1, static_cast<int64_t>(kNumTimeParts)}, at::kFloat);
  for (size_t part = 0; part < kNumTimeParts; ++part)
    own.mutable_data_ptr<float>()[part] = static_cast<float>(seconds[part] / num_steps_);
  const Tensor all = at::empty({world.size(), static_cast<int64_t>(kNumTimeParts)}, at::kFloat);
  world.all_gather(all, own).wait();
  num_steps_ = 0;
  RankTimes times;
  const auto* next = all.const_data_ptr<float>();
  for (int rank = 0; rank < world.size(); ++rank) {
    for (auto& part : times.of) part.push_back(static_cast<double>(*next++));
  }
  return times;
}

}  // namespace athanor::inline train

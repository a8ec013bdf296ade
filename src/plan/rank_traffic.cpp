#include "plan/rank_traffic.h"

#include <algorithm>

#include "layout/optimizer_state.h"

namespace athanor::inline plan {
namespace {

// Calls that each microbatch makes.
bool is_of_microbatch(TrafficPurpose purpose) {
  switch (purpose) {
    case TrafficPurpose::kLayers:
    case TrafficPurpose::kVocabulary:
    case TrafficPurpose::kStages:
    case TrafficPurpose::kTokens:
    case TrafficPurpose::kBalance: return true;
    default: return false;
  }
}

bool is_of_backward(TrafficPurpose purpose) {
  return is_of_microbatch(purpose) || purpose == TrafficPurpose::kGradients;
}

bool has_second_backward(const RunConfig& config) {
  return std::ranges::any_of(plan_optimizers(config.optimizer).optimizers,
                             [](const OptimizerDeclaration& each) { return each.needs.second_backward; });
}

}  // namespace

std::vector<RankTraffic> traffic_of_step(const PlayRecord& record, const RunConfig& config, int64_t microbatches,
                                         int64_t all_microbatches) {
  const double more = static_cast<double>(all_microbatches) / static_cast<double>(microbatches);
  const bool is_twice = has_second_backward(config);
  std::vector<RankTraffic> lines;
  for (const auto& [kind, total] : record.sent()) {
    if (kind.collective == Collective::kReceive) continue;
    double times = is_of_microbatch(kind.purpose) ? more : 1;
    if (is_twice && is_of_backward(kind.purpose)) times /= 2;
    lines.push_back({kind.purpose, kind.collective, kind.group, kind.peer, times * static_cast<double>(total.calls),
                     times * static_cast<double>(total.bytes), times * static_cast<double>(total.inside)});
  }
  return lines;
}

std::vector<RankTraffic> traffic_of_second_backward(const std::vector<RankTraffic>& of_step, const RunConfig& config) {
  std::vector<RankTraffic> lines;
  if (!has_second_backward(config)) return lines;
  const auto interval = static_cast<double>(config.optimizer.hessian_interval);
  for (RankTraffic line : of_step) {
    if (!is_of_backward(line.purpose)) continue;
    line.calls /= interval, line.bytes /= interval, line.inside /= interval;
    lines.push_back(line);
  }
  return lines;
}

}  // namespace athanor::inline plan

#include "metrics/rank_metrics.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace athanor::inline metrics {
namespace {

std::vector<comm::Communicator*> groups_of(const Mesh& mesh) {
  std::vector<comm::Communicator*> groups = {&mesh.world().all()};
  for (const GroupKind kind : kGroupKinds) groups.push_back(&mesh.group(kind));
  return groups;
}

GroupTraffic& operator+=(GroupTraffic& sum, const comm::Traffic& traffic) {
  sum.calls += traffic.calls;
  sum.bytes_inside += traffic.bytes_inside;
  sum.bytes_outside += traffic.bytes_outside;
  sum.waited_s += traffic.waited_s;
  return sum;
}

GroupTraffic operator-(const GroupTraffic& now, const GroupTraffic& before) {
  return {now.calls - before.calls, now.bytes_inside - before.bytes_inside, now.bytes_outside - before.bytes_outside,
          now.waited_s - before.waited_s};
}

// Returns "expert rank 3 (rank 3 on host-a, rank 7 on host-b)".
std::string name_expert_rank(size_t expert_rank, const Layout& layout, const std::vector<std::string>& hosts) {
  constexpr size_t kShown = 4;
  std::vector<std::string> members;
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    if (layout.coordinate(rank, Axis::kExpert) != static_cast<int>(expert_rank)) continue;
    if (members.size() == kShown) {
      members.emplace_back("…");
      break;
    }
    members.push_back(fmt::format("rank {} on {}", rank, hosts.at(static_cast<size_t>(rank))));
  }
  return fmt::format("expert rank {} ({})", expert_rank, join(members));
}

}  // namespace

std::optional<std::string> describe_imbalance(const StepMetrics& metrics, const Layout& layout,
                                              const std::vector<std::string>& hosts) {
  if (!metrics.rank_norms) return std::nullopt;
  const auto& experts = metrics.rank_norms->experts;
  // The step guard reports values that are not finite; if all are zero there is no imbalance.
  if (experts.empty() || !std::ranges::all_of(experts, [](double norm) { return std::isfinite(norm); })) return {};
  const auto [least, most] = std::ranges::minmax_element(experts);
  if (!(*most > kAlarmingImbalance * *least)) return std::nullopt;
  std::string text = fmt::format(
      "the experts of {} have a gradient norm of {:.3g}, those of {} {:.3g}, more than {:.0f} times less",
      name_expert_rank(static_cast<size_t>(most - experts.begin()), layout, hosts), *most,
      name_expert_rank(static_cast<size_t>(least - experts.begin()), layout, hosts), *least, kAlarmingImbalance);
  if (metrics.tokens_per_dest_rank) {
    text += fmt::format("; {} tokens of a layer went to one rank, and {} to another",
                        format_thousands(metrics.tokens_per_dest_rank->max),
                        format_thousands(metrics.tokens_per_dest_rank->min));
  }
  return text +
         ". A router that is all zero, or has run away, sends every token to the same few experts: look at its "
         "weights, "
         "at expert_load_max_over_mean and dead_experts, and raise moe.router_aux_loss_coef or set moe.balance";
}

TrafficMeter::TrafficMeter(std::vector<comm::Communicator*> groups) : groups_(std::move(groups)) {
  std::erase_if(groups_, [](const comm::Communicator* group) { return group->size() == 1; });
  take();
}

TrafficMeter::TrafficMeter(const Mesh& mesh) : TrafficMeter(groups_of(mesh)) {}

void TrafficMeter::add(comm::Communicator& group) {
  if (group.size() == 1) return;
  groups_.push_back(&group);
  before_[group.name()] += group.traffic();
}

double TrafficMeter::waited_s() const {
  double sum = 0;
  for (const auto* group : groups_) sum += group->traffic().waited_s;
  return sum;
}

std::map<std::string, GroupTraffic> TrafficMeter::take() {
  std::map<std::string, GroupTraffic> now, since;
  for (const auto* group : groups_) now[group->name()] += group->traffic();
  for (const auto& [name, traffic] : now) {
    const GroupTraffic difference = traffic - before_[name];
    if (difference.calls > 0) since[name] = difference;
  }
  before_ = std::move(now);
  return since;
}

}  // namespace athanor::inline metrics

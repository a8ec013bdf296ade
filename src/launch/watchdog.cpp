#include "launch/watchdog.h"

#include <fmt/core.h>

#include <algorithm>
#include <initializer_list>
#include <set>
#include <string_view>

namespace athanor::launch {
namespace {

// Whether a rank is in one of the phases. What a node that is lost showed last is no phase of the job.
bool any_is_in(const board::RunStatus& status, std::initializer_list<std::string_view> phases) {
  return std::ranges::any_of(status.ranks, [&](const board::SeenRank& seen) {
    return seen.silent_s == 0 && seen.rank.is_there() && std::ranges::find(phases, seen.rank.phase) != phases.end();
  });
}

}  // namespace

Sight sight_of(const board::RunStatus& status, int64_t attempt_before, int64_t first_step) {
  if (status.ranks.empty() || (status.attempt != 0 && status.attempt <= attempt_before)) return {};
  Sight sight;
  sight.state = fmt::format("{} {} {}", status.attempt, status.num_gone, status.num_ended);
  for (const board::PhaseCount& phase : status.phases) {
    sight.state += fmt::format(" {} {} {} {}", phase.phase, phase.num_ranks, phase.first_step, phase.last_step);
    sight.step = std::max(sight.step, phase.last_step);
  }
  if (status.attempt == 0 || any_is_in(status, {"start"}))
    sight.stage = Stage::kLoad;
  else if (any_is_in(status, {"save", "validate", "evaluate"}))
    sight.stage = Stage::kSave;
  else
    sight.stage = first_step == 0 || sight.step <= first_step ? Stage::kFirstStep : Stage::kStep;
  return sight;
}

std::vector<std::string> late_nodes(const board::RunStatus& status) {
  std::vector<std::string> nodes;
  if (2 * status.behind.num_behind > std::ssize(status.ranks)) return nodes;
  for (const board::BehindRank& behind : status.behind.ranks) {
    const std::string& node = status.ranks[behind.index].node;
    if (std::ranges::find(nodes, node) == nodes.end()) nodes.push_back(node);
  }
  return nodes;
}

std::vector<std::string> silent_hosts(const board::RunStatus& status, const JobHosts& hosts) {
  if (std::ssize(status.ranks) >= status.job_ranks) return {};
  std::set<std::string> reported;
  for (const std::string& node : status.nodes) reported.insert(hosts.find(node).value_or(""));
  std::vector<std::string> silent;
  for (const std::string& host : hosts.names())
    if (!reported.contains(host)) silent.push_back(host);
  return 2 * silent.size() < hosts.size() ? silent : std::vector<std::string>();
}

}  // namespace athanor::launch

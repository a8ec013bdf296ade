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
  std::set<std::string> silent, reporting;
  for (const board::LateNode& late : status.late) silent.insert(hosts.find(late.node).value_or(late.node));
  for (const std::string& node : status.nodes) {
    const std::string host = hosts.find(node).value_or(node);
    if (!silent.contains(host)) reporting.insert(host);
  }
  const bool misses_ranks = std::ssize(status.ranks) < status.job_ranks || status.ranks.empty();
  std::vector<std::string> found;
  for (const std::string& host : hosts.names())
    if (silent.contains(host) || (misses_ranks && !reporting.contains(host))) found.push_back(host);
  return found;
}

std::vector<std::string> hosts_at_fault(const board::RunStatus& status, const JobHosts& hosts, std::string_view own) {
  std::vector<std::string> at_fault;
  for (const std::string& node : late_nodes(status)) at_fault.push_back(hosts.find(node).value_or(node));
  const std::vector<std::string> silent = silent_hosts(status, hosts);
  const auto is_silent = [&](const std::string& host) { return std::ranges::find(silent, host) != silent.end(); };
  const auto own_host = hosts.find(own);
  const bool others_report =
      std::ranges::any_of(hosts.names(), [&](const std::string& host) { return host != own_host && !is_silent(host); });
  if (!others_report || !std::ranges::all_of(at_fault, is_silent)) return at_fault;
  for (const std::string& host : silent)
    if (std::ranges::find(at_fault, host) == at_fault.end()) at_fault.push_back(host);
  return at_fault;
}

}  // namespace athanor::launch

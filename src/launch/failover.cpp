#include "launch/failover.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "launch/host_list.h"

namespace athanor::launch {
namespace {

FailoverDecision stop(std::string reason) { return {false, std::move(reason)}; }

// Whether the hosts that an ending names are those at fault. Of a start that is stuck they are the ones that the others
// waited for. The network, a launcher or a crash that nothing explains name whom they saw.
bool names_culprits(Cause cause) {
  return cause == Cause::kBadNode || cause == Cause::kSoftFailure || cause == Cause::kSilentHang ||
         cause == Cause::kStuckPreTraining;
}

// Two attempts in a row that take no step show that something else is needed than another attempt.
constexpr int kMostIdle = 2;

class Failover {
 public:
  Failover(const FailoverState& state, const AttemptOutcome& outcome, const FailoverLimits& limits)
      : outcome_(outcome), limits_(limits), row_(row_of(outcome.cause)), next_(state) {
    if (outcome.made_progress) next_.idle_attempts = next_.waits = 0;
    if (!outcome.made_progress) ++next_.idle_attempts;
  }

  FailoverDecision decide() {
    if (row_.verdict == Verdict::kSuccess) return stop("complete");
    if (row_.verdict == Verdict::kStopped || row_.verdict == Verdict::kWalltime)
      return stop(fmt::format("{}: {}", row_.kind, row_.action));
    if (row_.time == Cure::kNo && row_.swap == Cure::kNo)
      return stop(fmt::format("{}: neither time nor another node cures it; {}", row_.kind, row_.action));
    if (next_.idle_attempts >= kMostIdle && row_.time != Cure::kYes)
      return stop(fmt::format("{}: {} attempts in a row took no step", row_.kind, next_.idle_attempts));
    auto bad = hosts_to_swap();
    if (bad.empty()) return retry_on_same_hosts("");
    if (blames_most(bad))
      return retry_on_same_hosts(
          fmt::format("it names {} of {} hosts, so that no node is the cause", bad.size(), next_.hosts.size()));
    int hosts_left = hosts_without(bad.size());
    if (hosts_left == 0 && may_swap_some()) {
      tried_again_.assign(bad.begin() + std::ssize(next_.spares), bad.end());
      bad.resize(next_.spares.size());
      hosts_left = static_cast<int>(next_.hosts.size());
    }
    if (hosts_left == 0)
      return retry_on_same_hosts(fmt::format("{} at fault and {} left", counted(std::ssize(bad), "host"),
                                             counted(std::ssize(next_.spares), "spare node")));
    if (next_.swaps >= limits_.swaps)
      return stop(fmt::format("{} of {}: all {} of --max-failover-retries are made", row_.kind, join(bad, " "),
                              counted(limits_.swaps, "swap")));
    return swap(bad, static_cast<size_t>(hosts_left));
  }

 private:
  bool is_in_use(const std::string& host) const { return std::ranges::find(next_.hosts, host) != next_.hosts.end(); }

  bool is_suspect(const std::string& host) const {
    return std::ranges::find(outcome_.suspects, host) != outcome_.suspects.end();
  }

  std::vector<std::string> hosts_to_swap() {
    std::vector<std::string> bad;
    if (!limits_.may_swap || row_.swap == Cure::kNo) return bad;
    for (const std::string& host : outcome_.at_fault) {
      const bool counts = is_suspect(host) ? limits_.swaps_suspects : names_culprits(row_.cause);
      if (counts && is_in_use(host) && std::ranges::find(bad, host) == bad.end()) bad.push_back(host);
    }
    if (bad.empty() && row_.verdict == Verdict::kSilentHang && !next_.hosts.empty()) {
      bad.push_back(choose_blindly());
    }
    return bad;
  }

  // Nothing tells who hung: the host of rank 0 is as good as any other, unless one is silent while others report.
  std::string choose_blindly() {
    const auto silent = std::ranges::find_if(next_.hosts, [&](const std::string& host) {
      return std::ranges::find(outcome_.silent, host) != outcome_.silent.end();
    });
    const bool none_reports = outcome_.silent.size() >= next_.hosts.size();
    if (silent == next_.hosts.end() || none_reports) {
      blind_choice_ = "the host of rank 0";
      return next_.hosts[0];
    }
    blind_choice_ = "the first host that does not report";
    return *silent;
  }

  // With fewer spares than hosts at fault the others are tried again, which must not compute wrong numbers.
  bool may_swap_some() const { return !next_.spares.empty() && row_.time != Cure::kNo; }

  // Two nodes of a job may fail at once, and a rack of a large one; most nodes of a job do not.
  bool blames_most(const std::vector<std::string>& bad) const {
    return bad.size() > 1 && 2 * bad.size() > next_.hosts.size();
  }

  // Returns how many hosts the next attempt has if these are taken out: as many as now, or fewer with --min-nodes; 0 if
  // there is no such number.
  int hosts_without(size_t num_bad) const {
    const auto num_hosts = static_cast<int>(next_.hosts.size());
    if (num_bad <= next_.spares.size()) return num_hosts;
    const auto healthy = next_.hosts.size() - num_bad + next_.spares.size();
    return limits_.fewer_hosts ? limits_.fewer_hosts(static_cast<int>(healthy)) : 0;
  }

  FailoverDecision swap(const std::vector<std::string>& bad, size_t num_hosts) {
    FailoverDecision decision{true, ""};
    const size_t num_before = next_.hosts.size();
    std::vector<std::string> changes;
    for (const std::string& host : bad) {
      const auto place = std::ranges::find(next_.hosts, host);
      if (next_.spares.empty()) {
        next_.hosts.erase(place);
        decision.left_out.push_back(host);
        continue;
      }
      *place = next_.spares.front();
      next_.spares.erase(next_.spares.begin());
      decision.swapped.emplace_back(host, *place);
      changes.push_back(fmt::format("{} takes the place of {}", *place, host));
    }
    if (num_hosts < num_before) changes.push_back(keep_first_hosts(num_hosts, num_before, decision.left_out));
    ++next_.swaps;
    next_.waits = 0;
    decision.reason = fmt::format("{}: {}", row_.kind, join(changes));
    if (std::ranges::any_of(bad, [&](const auto& host) { return is_suspect(host); }))
      decision.reason += " (a suspect: --swap-suspects no keeps it)";
    if (!tried_again_.empty())
      decision.reason += fmt::format(", and {} {} tried again: no spare is left", join(tried_again_, " "),
                                     tried_again_.size() == 1 ? "is" : "are");
    if (!blind_choice_.empty())
      decision.reason += fmt::format(" (blind: nothing tells which rank hung, and this is {})", blind_choice_);
    decision.next = std::move(next_);
    return decision;
  }

  // The layout may not divide over all hosts that are left: the others become spares. Returns what it costs.
  std::string keep_first_hosts(size_t num_hosts, size_t num_before, const std::vector<std::string>& left_out) {
    const auto end = next_.hosts.begin() + static_cast<std::ptrdiff_t>(num_hosts);
    next_.spares.insert(next_.spares.end(), end, next_.hosts.end());
    next_.hosts.erase(end, next_.hosts.end());
    return fmt::format(
        "without {} and with no spare left, it continues on {} of {} nodes: data and batch stay as they are, and a "
        "step takes about {:.2g} times as long",
        join(left_out, " "), num_hosts, num_before, static_cast<double>(num_before) / static_cast<double>(num_hosts));
  }

  // @param lacks  why hosts that are named are not swapped; "": there are none.
  FailoverDecision retry_on_same_hosts(const std::string& lacks) {
    const std::string kind = lacks.empty() ? row_.kind : fmt::format("{} ({})", row_.kind, lacks);
    if (row_.time == Cure::kNo) return stop(fmt::format("{}: only another node cures it; {}", kind, row_.action));
    if (next_.retries >= limits_.retries)
      return stop(limits_.retries == 0 ? fmt::format("{}: no --retries on the same hosts", kind)
                                       : fmt::format("{}: all {} of --retries are made", kind, limits_.retries));
    ++next_.retries;
    FailoverDecision decision{true, kind};
    if (row_.time == Cure::kYes || !outcome_.made_progress) decision.wait_s = backoff_s(next_.waits++);
    decision.next = std::move(next_);
    return decision;
  }

  const AttemptOutcome& outcome_;
  const FailoverLimits& limits_;
  const CauseRow& row_;
  FailoverState next_;
  std::string blind_choice_;              // why a blind swap takes its host; "": it is none
  std::vector<std::string> tried_again_;  // at fault, but no spare is left for them
};

}  // namespace

FailoverDecision decide_failover(const FailoverState& state, const AttemptOutcome& outcome,
                                 const FailoverLimits& limits) {
  return Failover(state, outcome, limits).decide();
}

double backoff_s(int waits) {
  constexpr std::array<double, 5> kWaits = {5, 10, 20, 40, 60};
  return kWaits[static_cast<size_t>(std::clamp(waits, 0, static_cast<int>(kWaits.size()) - 1))];
}

int automatic_spares(int hosts_in_use) { return std::max(4, (hosts_in_use + 49) / 50); }

}  // namespace athanor::launch

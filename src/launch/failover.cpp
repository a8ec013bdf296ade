#include "launch/failover.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "launch/host_list.h"

namespace athanor::launch {
namespace {

FailoverDecision stop(std::string reason) { return {false, std::move(reason), 0, {}, {}}; }

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
    const auto bad = hosts_to_swap();
    if (bad.empty()) return retry_on_same_hosts("");
    if (bad.size() > next_.spares.size())
      return retry_on_same_hosts(fmt::format("{} at fault and {} left", counted(std::ssize(bad), "host"),
                                             counted(std::ssize(next_.spares), "spare node")));
    if (next_.swaps >= limits_.swaps)
      return stop(fmt::format("{} of {}: all {} of --max-failover-retries are made", row_.kind, join(bad, " "),
                              counted(limits_.swaps, "swap")));
    return swap(bad);
  }

 private:
  bool is_in_use(const std::string& host) const { return std::ranges::find(next_.hosts, host) != next_.hosts.end(); }

  std::vector<std::string> hosts_to_swap() {
    std::vector<std::string> bad;
    const bool blames = row_.verdict == Verdict::kBadNode || row_.verdict == Verdict::kSoftFailure ||
                        row_.verdict == Verdict::kSilentHang;
    if (!limits_.may_swap || row_.swap == Cure::kNo || !blames) return bad;
    for (const std::string& host : outcome_.at_fault)
      if (is_in_use(host) && std::ranges::find(bad, host) == bad.end()) bad.push_back(host);
    if (bad.empty() && row_.verdict == Verdict::kSilentHang && !next_.hosts.empty()) {
      is_blind_ = true;
      bad.push_back(next_.hosts[0]);
    }
    return bad;
  }

  FailoverDecision swap(const std::vector<std::string>& bad) {
    FailoverDecision decision{true, "", 0, {}, {}};
    for (const std::string& host : bad) {
      decision.swapped.emplace_back(host, next_.spares.front());
      std::ranges::replace(next_.hosts, host, next_.spares.front());
      next_.spares.erase(next_.spares.begin());
    }
    ++next_.swaps;
    next_.waits = 0;
    std::vector<std::string> pairs;
    for (const auto& [host, spare] : decision.swapped)
      pairs.push_back(fmt::format("{} takes the place of {}", spare, host));
    decision.reason = fmt::format("{}: {}", row_.kind, join(pairs));
    if (is_blind_) decision.reason += " (blind: nothing tells which rank hung, and this is the host of rank 0)";
    decision.next = std::move(next_);
    return decision;
  }

  // @param lacks  why hosts at fault are not swapped; "": there are none.
  FailoverDecision retry_on_same_hosts(const std::string& lacks) {
    const std::string kind = lacks.empty() ? row_.kind : fmt::format("{} ({})", row_.kind, lacks);
    if (row_.time == Cure::kNo) return stop(fmt::format("{}: only another node cures it; {}", kind, row_.action));
    if (next_.retries >= limits_.retries)
      return stop(limits_.retries == 0 ? fmt::format("{}: no --retries on the same hosts", kind)
                                       : fmt::format("{}: all {} of --retries are made", kind, limits_.retries));
    ++next_.retries;
    FailoverDecision decision{true, kind, 0, {}, {}};
    if (row_.time == Cure::kYes || !outcome_.made_progress) decision.wait_s = backoff_s(next_.waits++);
    decision.next = std::move(next_);
    return decision;
  }

  const AttemptOutcome& outcome_;
  const FailoverLimits& limits_;
  const CauseRow& row_;
  FailoverState next_;
  bool is_blind_ = false;
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

#include "board/behind.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

namespace athanor::board {
namespace {

// A call that ranks wait for.
struct AwaitedCall {
  WaitReport wait;              // as one of them reports it
  std::vector<size_t> waiting;  // the ranks, and
  std::vector<double> since;    // when each began
  std::vector<size_t> missing;  // ranks that keep it from being complete
};

class WaitGraph {
 public:
  explicit WaitGraph(const std::vector<SeenRank>& ranks) : ranks_(ranks), awaited_in_(ranks.size()) {
    for (size_t i = 0; i < ranks.size(); ++i) {
      by_rank_[ranks[i].rank.rank] = i;
      for (const GroupReport& group : ranks[i].rank.groups) members_[group.group].emplace_back(i, group.started);
    }
    for (size_t i = 0; i < ranks.size(); ++i) add_wait(i);
    for (AwaitedCall& call : calls_) {
      find_missing(call);
      for (size_t missing : call.missing) awaited_in_[missing].push_back(&call);
      waiting_.insert(call.waiting.begin(), call.waiting.end());
    }
  }

  const std::set<size_t>& waiting() const { return waiting_; }
  bool is_awaited(size_t rank) const { return !awaited_in_[rank].empty(); }
  const WaitReport& awaited_call(size_t rank) const { return awaited_in_[rank].front()->wait; }

  // Returns the number of ranks that wait for this one, also by way of others.
  int64_t num_waiting_for(size_t rank) const {
    std::set<size_t> found;
    std::set<const AwaitedCall*> seen;
    std::vector<size_t> next{rank};
    while (!next.empty()) {
      const size_t at = next.back();
      next.pop_back();
      for (const AwaitedCall* call : awaited_in_[at]) {
        if (!seen.insert(call).second) continue;
        for (size_t waiting : call->waiting)
          if (waiting != rank && found.insert(waiting).second) next.push_back(waiting);
      }
    }
    return std::ssize(found);
  }

 private:
  // Ranks whose processes do not run, or whose node is silent, wait for none: they are looked at themselves.
  void add_wait(size_t i) {
    const RankReport& rank = ranks_[i].rank;
    if (!rank.waits || rank.state != "running" || rank.change_s < kPatience_s || ranks_[i].silent_s > 0) return;
    const WaitReport& wait = *rank.waits;
    const int from = wait.peer < 0 ? -1 : rank.rank;  // each message is a call of its two ranks only
    const auto [found, is_new] =
        index_.emplace(std::make_tuple(wait.group, wait.number, from, wait.call), calls_.size());
    if (is_new) calls_.push_back({wait, {}, {}, {}});
    calls_[found->second].waiting.push_back(i);
    calls_[found->second].since.push_back(ranks_[i].changed());
  }

  void find_missing(AwaitedCall& call) const {
    const double since = *std::ranges::min_element(call.since);
    const auto was_seen_later = [&](size_t i) { return ranks_[i].seen >= since + kPatience_s; };
    if (call.wait.peer >= 0) {
      const auto peer = by_rank_.find(call.wait.peer);
      if (peer != by_rank_.end() && (was_seen_later(peer->second) || ranks_[peer->second].silent_s > 0))
        call.missing.push_back(peer->second);
      return;
    }
    const auto members = members_.find(call.wait.group);
    if (members == members_.end()) return;
    for (const auto& [i, started] : members->second)
      if (started <= call.wait.number && was_seen_later(i)) call.missing.push_back(i);
    if (!call.missing.empty()) return;
    // All have started it, but its messages need the processes to run until it is complete.
    for (const auto& [i, started] : members->second)
      if (!ranks_[i].rank.is_there() || ranks_[i].rank.state == "stopped")
        if (was_seen_later(i)) call.missing.push_back(i);
    if (!call.missing.empty()) return;
    for (const auto& [i, started] : members->second)
      if (ranks_[i].silent_s > 0) call.missing.push_back(i);
  }

  const std::vector<SeenRank>& ranks_;
  std::unordered_map<int, size_t> by_rank_;
  std::unordered_map<uint64_t, std::vector<std::pair<size_t, int64_t>>> members_;
  std::map<std::tuple<uint64_t, int64_t, int, std::string>, size_t> index_;
  std::vector<AwaitedCall> calls_;
  std::vector<std::vector<const AwaitedCall*>> awaited_in_;  // by rank: the calls that wait for it
  std::set<size_t> waiting_;
};

// True if no process of a node that reports is left, though the job had some there: it did not outlive a silent node.
bool only_silent_are_left(const std::vector<SeenRank>& ranks) {
  const auto reports = [](const SeenRank& seen) { return seen.silent_s == 0; };
  return std::ranges::any_of(ranks, [&](const SeenRank& seen) { return reports(seen) && seen.rank.state == "gone"; }) &&
         std::ranges::none_of(ranks, [&](const SeenRank& seen) { return reports(seen) && seen.rank.is_there(); });
}

// The last moment at which the rank was known to do something. The one that went first is in front of those that the
// launcher ended because of it, however many there are.
double last_sign(const SeenRank& seen) {
  if (seen.silent_s > 0) return seen.seen;
  return seen.rank.gone_s ? seen.seen - *seen.rank.gone_s : seen.changed();
}

}  // namespace

std::string describe_wait(const WaitReport& wait) {
  const char* which = wait.call == "send" ? " to rank " : " from rank ";
  return fmt::format("{} {} of group {}{}", wait.call, wait.number, wait.name.empty() ? "(gone)" : wait.name,
                     wait.peer >= 0 ? which + std::to_string(wait.peer) : "");
}

Behind find_behind(const std::vector<SeenRank>& ranks) {
  const WaitGraph graph(ranks);
  Behind behind;
  behind.num_waiting = std::ssize(graph.waiting());
  const bool silent_are_lost = only_silent_are_left(ranks);
  std::vector<size_t> found;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const bool is_lost = silent_are_lost && ranks[i].silent_s > 0;
    const bool runs = !is_lost && (ranks[i].rank.state == "running" || ranks[i].rank.state == "ended");
    if (runs && (!graph.is_awaited(i) || graph.waiting().contains(i))) continue;
    found.push_back(i);
  }
  behind.num_behind = std::ssize(found);
  std::ranges::stable_sort(found, {}, [&](size_t i) { return last_sign(ranks[i]); });
  found.resize(std::min(found.size(), kMostNamed));
  for (const size_t i : found) {
    const std::string call = graph.is_awaited(i) ? describe_wait(graph.awaited_call(i)) : "";
    behind.ranks.push_back({i, graph.num_waiting_for(i), call});
  }
  if (behind.num_behind > 0) return behind;
  for (size_t i : graph.waiting())
    if (behind.in_a_circle.size() < kMostNamed) behind.in_a_circle.push_back(i);
  return behind;
}

}  // namespace athanor::board

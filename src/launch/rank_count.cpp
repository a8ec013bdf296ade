#include "launch/rank_count.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace athanor::launch {
namespace {

std::string shown_slots(const Allocation& allocation) {
  int64_t slots = 0;
  for (const Host& host : allocation.hosts) slots += host.slots;
  return fmt::format("{} on {} ({})", counted(slots, "slot"), counted(std::ssize(allocation.hosts), "host"),
                     allocation.hosts_from);
}

// Ranks of each host if each has at most as many as `room` gives it.
RankCount fill_hosts(int ranks, const std::vector<int>& room) {
  RankCount count;
  for (size_t i = 0; i < room.size() && ranks > 0; ++i) {
    count.of_host.push_back(std::min(ranks, room[i]));
    ranks -= count.of_host.back();
  }
  return count;
}

std::vector<int> slots_of_hosts(const Allocation& allocation) {
  std::vector<int> slots;
  for (const Host& host : allocation.hosts) slots.push_back(host.slots);
  return slots;
}

// --ppn P, with or without -n N.
RankCount count_with_per_node(const RankRequest& request, int num_hosts) {
  const int per_node = *request.per_node;
  const int64_t most = int64_t{per_node} * num_hosts;
  ATHANOR_CHECK(!request.ranks || *request.ranks <= most,
                "-n {} and --ppn {} contradict each other: {} with {} ranks each have {}; take more hosts or "
                "another number",
                *request.ranks, per_node, counted(num_hosts, "host"), per_node, most);
  const bool is_too_few = request.ranks && request.has_nodes && *request.ranks <= most - per_node;
  ATHANOR_CHECK(
      !is_too_few, "-n {}, --ppn {} and --nodes {} contradict each other: {} ranks fill {}; leave one of them out",
      *request.ranks, per_node, num_hosts, *request.ranks, counted((*request.ranks + per_node - 1) / per_node, "host"));
  RankCount count = fill_hosts(request.ranks ? *request.ranks : static_cast<int>(most),
                               std::vector<int>(static_cast<size_t>(num_hosts), per_node));
  count.from = request.ranks ? "-n and --ppn" : fmt::format("--ppn on {}", counted(num_hosts, "host"));
  return count;
}

// -n N alone.
RankCount count_with_total(const RankRequest& request, const Allocation& allocation,
                           const std::optional<NodeOffer>& offer) {
  const int ranks = *request.ranks, num_hosts = static_cast<int>(allocation.hosts.size());
  ATHANOR_CHECK(!request.has_nodes || ranks >= num_hosts,
                "-n {} and --nodes {} contradict each other: each node needs a rank; take fewer nodes or more ranks",
                ranks, num_hosts);
  RankCount count;
  if (request.has_nodes) {  // spread over all of them
    const int per_host = (ranks + num_hosts - 1) / num_hosts, with_more = ranks - num_hosts * (per_host - 1);
    for (int i = 0; i < num_hosts; ++i) count.of_host.push_back(i < with_more ? per_host : per_host - 1);
    count.from = "-n, spread over --nodes";
  } else if (allocation.has_slots()) {
    count = fill_hosts(ranks, slots_of_hosts(allocation));
    count.from = fmt::format("-n, which fills the slots of {}", allocation.hosts_from);
  } else {
    const int needed = (ranks + num_hosts - 1) / num_hosts, per_host = std::max(needed, offer ? offer->ranks : 1);
    count = fill_hosts(ranks, std::vector<int>(static_cast<size_t>(num_hosts), per_host));
    count.from = offer && needed <= offer->ranks ? fmt::format("-n, on each node {}", offer->what) : "-n";
  }
  return count;
}

void refuse_more_than_slots(const RankCount& count, const Allocation& allocation) {
  if (!allocation.has_slots()) return;
  for (size_t i = 0; i < count.of_host.size(); ++i) {
    const Host& host = allocation.hosts[i];
    ATHANOR_CHECK(count.of_host[i] <= host.slots,
                  "{} ranks on {} are more than its {} slots ({}); start fewer, or ask for more slots",
                  count.of_host[i], host.name, host.slots, allocation.hosts_from);
  }
}

}  // namespace

int RankCount::total() const { return std::accumulate(of_host.begin(), of_host.end(), 0); }
int RankCount::most() const { return *std::ranges::max_element(of_host); }
bool RankCount::is_regular() const {
  return std::all_of(of_host.begin(), of_host.end() - 1, [&](int ranks) { return ranks == of_host[0]; }) &&
         of_host.back() <= of_host[0];
}

RankCount count_ranks(const RankRequest& request, const Allocation& allocation, const std::optional<NodeOffer>& offer) {
  const int num_hosts = static_cast<int>(allocation.hosts.size());
  RankCount count;
  if (request.per_node) {
    count = count_with_per_node(request, num_hosts);
  } else if (request.ranks) {
    if (allocation.has_slots()) {
      int64_t slots = 0;
      for (const Host& host : allocation.hosts) slots += host.slots;
      ATHANOR_CHECK(*request.ranks <= slots, "-n {}: there are only {}; start fewer ranks, or ask for more slots",
                    *request.ranks, shown_slots(allocation));
    }
    count = count_with_total(request, allocation, offer);
  } else if (allocation.has_slots()) {
    count = {slots_of_hosts(allocation), "the " + shown_slots(allocation)};
  } else {
    ATHANOR_CHECK(
        offer,
        "the number of ranks is not known: this machine is none of {} ({}), so their devices and cores cannot "
        "be seen from here; give --ppn, or -n",
        shown_hosts(allocation.hosts), allocation.hosts_from);
    count.of_host.assign(static_cast<size_t>(num_hosts), offer->ranks);
    count.from = offer->what;
  }
  refuse_more_than_slots(count, allocation);
  return count;
}

}  // namespace athanor::launch

#include "launch/fewer_hosts.h"

#include <algorithm>

#include "base/error.h"
#include "launch/training_command.h"
#include "layout/fitted_batch.h"

namespace athanor::launch {

std::function<int(int most)> hosts_that_fit(const LaunchPlan& plan, const std::string& own_program, int least) {
  const int per_host = plan.ranks.most(), hosts = static_cast<int>(plan.ranks.of_host.size());
  ATHANOR_CHECK(plan.ranks.total() == per_host * hosts,
                "--min-nodes needs the same number of ranks on each node, but there are {} on {} hosts; give --ppn",
                plan.ranks.total(), hosts);
  ATHANOR_CHECK(least <= hosts, "--min-nodes {}: expected at most the number of nodes in use, {}", least, hosts);
  return [config = training_config(plan.command, own_program), per_host, least](int most) {
    for (int number = most; number >= least; --number) {
      if (!config) return number;
      RunConfig fitted = *config;
      if (fit_to_ranks(fitted, number * per_host).empty()) return number;
    }
    return 0;
  };
}

void keep_first_hosts(LaunchPlan& plan, size_t number) {
  plan.allocation.keep_first(number);
  plan.ranks.of_host.resize(number);
}

}  // namespace athanor::launch

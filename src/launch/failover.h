#pragma once
// What follows when an attempt has ended: stop, or another attempt, when, and on which hosts. Pure: nothing is started
// and nothing is looked at here.
//
// The rules, in their order, are those of docs/launch.md ("Continuing after a failure").

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "launch/verdict.h"

namespace athanor::launch {

/// The wishes of the user.
struct FailoverLimits {
  int retries = 0;        ///< further attempts on the same hosts, in all
  bool may_swap = false;  ///< --auto-retry
  int swaps = 0;          ///< further attempts with another host, or with fewer, in all
  /// With --min-nodes: returns the largest number of hosts, up to `most`, that the command can run on; 0: none is
  /// allowed. Empty: it never runs on fewer hosts.
  std::function<int(int most)> fewer_hosts = {};
  bool swaps_suspects = true;  ///< also hosts that may be at fault but are not known to be
};

/// What has happened so far in a call of `athanor launch`.
struct FailoverState {
  std::vector<std::string> hosts;   ///< in use, in their places
  std::vector<std::string> spares;  ///< the first is taken first
  int retries = 0, swaps = 0;       ///< made so far
  int idle_attempts = 0;            ///< attempts in a row that took no step
  int waits = 0;                    ///< waits in a row since the last step: the next one is longer
};

/// How the newest attempt ended.
struct AttemptOutcome {
  Cause cause = Cause::kUnknown;
  std::vector<std::string> at_fault = {};  ///< hosts, as they are spelt in `hosts`; others are ignored
  bool made_progress = false;              ///< it took a step
  std::vector<std::string> silent = {};    ///< hosts that told nothing of the present at its end
  std::vector<std::string> suspects = {};  ///< those in `at_fault` that are not known to be
};

struct FailoverDecision {
  bool retries = false;  ///< false: stop
  std::string reason;    ///< why it stops or runs again, for people
  double wait_s = 0;
  std::vector<std::pair<std::string, std::string>> swapped = {};  ///< a host and the spare in its place
  std::vector<std::string> left_out = {};  ///< hosts that no other takes the place of: all after them move up
  FailoverState next = {};                 ///< for the next call, if it retries
};

FailoverDecision decide_failover(const FailoverState& state, const AttemptOutcome& outcome,
                                 const FailoverLimits& limits);

/// Seconds to wait before a retry that follows `waits` others without a step: 5, 10, 20, 40, then 60.
double backoff_s(int waits);

/// How many of the spare hosts of a job are kept by `--spare-nodes auto`: 2% of the hosts in use, and at least 4.
int automatic_spares(int hosts_in_use);

}  // namespace athanor::launch

#pragma once
// Which ranks the others wait for.
//
// A rank that waits in a collective waits for the members of its group that have not started that call; one that waits
// for a message waits for its other rank. If all have started the call, it waits for those whose processes do not run.
// Those who are waited for and do not wait themselves are behind. Reports of several nodes are of different moments. So
// a rank counts as waited for only if it had not started the call at least kPatience_s after the other began to wait.
// Nodes whose reports are late, as that of a host that is frozen or lost, tell nothing of the present: their ranks are
// behind if a call lacks nothing else, or if all others have gone.

#include <string>
#include <vector>

#include "board/node_report.h"

namespace athanor::board {

inline constexpr double kPatience_s = 1;  ///< clocks of nodes may differ by less

/// A rank with the moment at which it was seen.
struct SeenRank {
  RankReport rank;
  std::string node;
  double seen = 0;  ///< seconds since 1970
  double silent_s =
      0;  ///< age of its node's report, if that is late and the rank was there: what it does now is unknown

  double changed() const { return seen - rank.change_s; }
};

/// A rank that the others wait for, or whose process does not run.
struct BehindRank {
  size_t index = 0;         ///< in the list of ranks
  int64_t num_waiting = 0;  ///< ranks that wait for it, also by way of others
  std::string call;         ///< what one of them waits for: "all_reduce 41 of group data"; empty: none waits
};

struct Behind {
  std::vector<BehindRank> ranks;    ///< the first `kMostNamed`; in front the one that gave a sign of life longest ago
  int64_t num_behind = 0;           ///< number of all
  int64_t num_waiting = 0;          ///< ranks that have waited in a call for longer than the patience
  std::vector<size_t> in_a_circle;  ///< if no rank is behind: ranks that wait, though none has to be waited for
};
inline constexpr size_t kMostNamed = 16;

/// Returns text like "all_reduce 41 of group data", or "receive 7 of group pipeline from rank 3".
std::string describe_wait(const WaitReport& wait);

/// @param ranks  of one attempt.
Behind find_behind(const std::vector<SeenRank>& ranks);

}  // namespace athanor::board

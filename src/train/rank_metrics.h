#pragma once
// What is shown of a job's ranks beside one another: whether one of them stands apart, and what communicators carried.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "parallel/mesh.h"
#include "train/metrics.h"

namespace athanor {

/// Beyond this many times the least norm, something is broken rather than uneven.
constexpr double kAlarmingImbalance = 1000;

/// Names the expert ranks with the largest and the least gradient norm, with their ranks and hosts, and the likely
/// cause, if they are more than kAlarmingImbalance apart; otherwise nothing. (Norms of single ranks differ with the
/// parameters that they are of.)
/// @param hosts  of each rank.
std::optional<std::string> describe_imbalance(const StepMetrics& metrics, const Layout& layout,
                                              const std::vector<std::string>& hosts);

/// What communicators have carried from one step to the next.
class TrafficMeter {
 public:
  /// They outlive this; those of one rank are left out.
  explicit TrafficMeter(std::vector<comm::Communicator*> groups);
  explicit TrafficMeter(const Mesh& mesh);
  /// Also counts this one.
  void add(comm::Communicator& group);

  /// Since the start: seconds in which this rank did nothing but wait for a collective.
  double waited_s() const;
  /// Since the last call of this, by name.
  std::map<std::string, GroupTraffic> take();

 private:
  std::vector<comm::Communicator*> groups_;
  std::map<std::string, GroupTraffic> before_;
};

}  // namespace athanor

#pragma once
// Comparisons between the ranks of a job: whether the gradient norm of one of them is far off, and what communicators
// carried.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "metrics/metrics.h"
#include "parallel/mesh.h"

namespace athanor::inline metrics {

/// If the largest norm is more than this multiple of the smallest, something is broken rather than uneven.
constexpr double kAlarmingImbalance = 1000;

/// Returns a text if the largest gradient norm of an expert rank is more than kAlarmingImbalance times the smallest;
/// otherwise nothing. It names the two expert ranks, with their ranks and hosts, and the likely cause. (The norms of
/// single ranks differ because they are of different parameters.)
/// @param hosts  the host of each rank of the world.
std::optional<std::string> describe_imbalance(const StepMetrics& metrics, const Layout& layout,
                                              const std::vector<std::string>& hosts);

/// Measures what communicators carry from one step to the next.
class TrafficMeter {
 public:
  /// The communicators must outlive this object. Ignores communicators of one rank.
  explicit TrafficMeter(std::vector<comm::Communicator*> groups);
  /// Counts all groups of the mesh, and the world's own.
  explicit TrafficMeter(const Mesh& mesh);
  /// Also counts this communicator, from now on.
  void add(comm::Communicator& group);

  /// Returns the seconds in which this rank only waited for collectives of the communicators, since they were made.
  double waited_s() const;
  /// Returns this rank's traffic since the last call of this function (at first since the constructor), by communicator
  /// name, for those that were called.
  std::map<std::string, GroupTraffic> take();

 private:
  std::vector<comm::Communicator*> groups_;
  std::map<std::string, GroupTraffic> before_;
};

}  // namespace athanor::inline metrics

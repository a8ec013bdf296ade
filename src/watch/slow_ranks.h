#pragma once
// Finds ranks that compute more slowly than others with the same work. All ranks wait for them in each step, so only
// the time that each rank itself computes shows which are slow. On a device that is the time for which the device
// computed (parallel/compute_clock.h), else the host's.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "ops/tensor.h"
#include "parallel/mesh.h"

namespace athanor::inline watch {

/// A rank that is slower than the median of those with the same work.
struct SlowRank {
  int rank = 0;
  double share = 0;  ///< how much longer it takes: 0.2 is 20%
};
/// Returns the ranks that are more than 15% slower than the median of at least three ranks of their kind, the slowest
/// first.
/// @param seconds, kinds  by rank; ranks of one kind have the same work. NaN: not known.
std::vector<SlowRank> find_slow_ranks(std::span<const double> seconds, std::span<const int> kinds);

class SlowRanks {
 public:
  static constexpr int kSteps = 20;
  static constexpr int kForgets = 5;  ///< comparisons in a row in which a rank must not be slow to be named afresh

  /// `mesh` must outlive this.
  explicit SlowRanks(const Mesh& mesh) : mesh_(mesh) {}

  /// Returns whether there are enough ranks to compare.
  bool compares() const;
  /// Takes the time that this rank has computed in a step, without waits for others; NaN: not known. After each kSteps
  /// steps the medians of all ranks are compared: ranks of the same pipeline stage have the same work. Collective over
  /// the world.
  /// @return a line if a comparison finds a slow rank that was not named before, or that has been forgotten since.
  ///         There is also a line if a comparison forgets the last rank that was named; else "".
  std::string took(int64_t step, double seconds);

 private:
  std::string compare(int64_t step);

  const Mesh& mesh_;
  int64_t num_steps_ = 0;      // since the last comparison
  std::vector<double> times_;  // those that are known
  std::map<int, int> named_;   // ranks that were named → comparisons since they were last slow
};

}  // namespace athanor::inline watch

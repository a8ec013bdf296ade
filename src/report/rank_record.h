#pragma once
// Where the time of each rank went, from the steps of a run that have it (`rank_times` in docs/metrics.md).

#include <array>
#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace athanor::inline report {

/// The parts of a rank's time, in the order in which they are shown.
inline constexpr std::array<const char*, 10> kRankParts{"data",           "forward_compute",
                                                        "forward_comm",   "backward_compute",
                                                        "backward_comm",  "optimizer_compute",
                                                        "optimizer_comm", "save",
                                                        "evaluation",     "other"};

struct RankTimesAt {
  double step = 0;
  std::array<std::vector<double>, kRankParts.size()> seconds;  ///< a step, by part and rank

  size_t num_ranks() const { return seconds[0].size(); }
  double sum_of(size_t rank, bool of_comm) const;  ///< over the parts that compute, or those that communicate
};

/// The least, the mean and the most of many ranks.
struct RankExtremesAt {
  struct Of {
    double least = 0, mean = 0, most = 0;
    int least_rank = 0, most_rank = 0;
  };
  double step = 0;
  Of compute, comm;
};

struct RankRecord {
  std::vector<RankTimesAt> times;  ///< by step, all of as many ranks as the last one
  std::vector<RankExtremesAt> extremes;
};

/// Reads a metrics.jsonl. Lines that are not understood are left out; if a step occurs again, the lines from its first
/// occurrence on are superseded. @throws IoError if the file cannot be read.
RankRecord read_rank_record(const std::filesystem::path& metrics);

}  // namespace athanor::inline report

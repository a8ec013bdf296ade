#pragma once
// The figures of athanor bench checkpoint, as a table for people and as JSON for programs.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace athanor::bench {

/// One save while steps run, one alone and one load, each with what the disk did in the same minute. Times are those of
/// the slowest rank.
struct CheckpointRound {
  std::vector<double> steps_s;         ///< while nothing is written
  std::vector<double> saving_steps_s;  ///< from the copy until the checkpoint is on disk
  double stopped_s = 0;                ///< the copy, for which the steps wait
  double commit_s = 0;                 ///< from the beginning of the copy until the checkpoint is on disk
  double alone_s = 0;                  ///< a save with no step under way, after its copy
  double load_s = 0;
  double plain_write_s = 0, plain_read_s = 0;  ///< the same bytes in one plain file for each rank
  double above_pool_bytes = 0;  ///< the most that a rank held during the save beyond what it held before the first

  double step_s() const;
  double saving_step_s() const;
};

struct CheckpointFigures {
  int ranks = 1;
  std::string folder, writers;     ///< where the files are, and checkpoint.writers
  bool direct = false;             ///< the plain files pass by the page cache
  int64_t parameters = 0;          ///< the size of the model
  double bytes = 0;                ///< what all ranks write
  double pool_bytes = 0;           ///< the largest pool of a rank
  std::vector<double> node_bytes;  ///< written by the ranks of each node
  std::vector<CheckpointRound> rounds;
};

/// Returns the figures as one object (docs/checkpoints.md lists its keys).
nlohmann::ordered_json to_json(const CheckpointFigures& figures);
/// Returns them as a table.
std::string to_text(const CheckpointFigures& figures);

}  // namespace athanor::bench

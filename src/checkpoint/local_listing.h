#pragma once
// What is known of a run's local checkpoints without its nodes, for people: where they are recorded to lie, and what of
// them this host has.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace athanor::inline checkpoint {

/// A local checkpoint, as far as it is on this host.
struct LocalHere {
  int64_t step = 0, attempt = 0;
  int writers = 0;  ///< ranks that wrote it
  int found = 0;    ///< ranks of these whose pieces are here

  bool operator==(const LocalHere&) const = default;
};

struct LocalListing {
  std::filesystem::path folder;    ///< on each node
  std::vector<std::string> nodes;  ///< that where.json in the run's folder names
  std::vector<LocalHere> here;     ///< newest first
  std::string problem;             ///< why something could not be read; empty if all could
};

/// Returns what is known; none if the run has no where.json. Reads no pieces, and changes nothing.
std::optional<LocalListing> list_local(const std::filesystem::path& run_dir);

/// Returns it in one line.
std::string describe_local(const LocalListing& listing);

}  // namespace athanor::inline checkpoint

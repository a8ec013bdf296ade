#pragma once
// Sends files, folders and archives from the first node of a job to the local disk of every node, its own included.
//
// 1. The first rank on each disk takes part (leaders.h). 2. Rank 0 lists the source and sends the list to all. 3. Each
// node finds out what it lacks; a bit for each chunk is merged along a tree, and what some node lacks is sent. 4.
// Chunks travel along two trees (relay.h), and are written as they come (landing.h). Damaged ones are sent again. 5.
// Reports are merged along a tree.
//
// A node whose disk fails still forwards to others, and these get all that is sent. Nothing is half there: a file has
// its name when it is whole, and what is not whole waits for the next call.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "staging/report.h"
#include "wire/wire.h"

namespace athanor::staging {

inline constexpr uint64_t kChunkBytes = uint64_t{4} << 20;

struct YeetRequest {
  std::vector<std::string> sources;  ///< only rank 0 looks at them
  std::string target;                ///< {host} and {rank} in it are replaced
  bool unpack = true;                ///< archives among the sources
  bool compares_bytes = false;       ///< compares hashes in place of size and time of change
  bool lists_nodes = false;          ///< the report has a line for each node
  uint64_t chunk_bytes = kChunkBytes;
  /// On rank 0: gets the bytes that will be sent, and then those that were sent since the last call.
  std::function<void(uint64_t total)> will_send = [](uint64_t) {};
  std::function<void(uint64_t bytes)> has_sent = [](uint64_t) {};
};

struct YeetOutcome {
  int exit_code = 0;         ///< the same on all ranks
  std::string failure = {};  ///< one line, on rank 0
  Report report = {};        ///< on rank 0, as is all that follows
  uint64_t bytes = 0, sent_bytes = 0, num_files = 0;
  std::vector<std::string> warnings = {};
};

/// Collective over the wire, whose ranks may have different sources and hosts but otherwise the same request. When it
/// returns, nothing is in flight except receives that nothing will come for: their memory lives until `keep_alive`
/// ends, which must be after the wire was closed.
/// @throws what the wire throws: another rank has died.
YeetOutcome yeet(comm::Wire& wire, const YeetRequest& request, const std::string& host,
                 std::vector<std::shared_ptr<void>>& keep_alive);

}  // namespace athanor::staging

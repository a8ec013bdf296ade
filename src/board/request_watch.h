#pragma once
// The collector's side of requests for stacks (stack_request.h): which have come, and the answer of this node.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "board/board.h"
#include "board/stack_request.h"

namespace athanor::board {

struct FoundRequest {
  std::filesystem::path folder;
  std::vector<AskedRank> ranks;  ///< those on this node
};

class RequestWatch {
 public:
  RequestWatch(std::filesystem::path run_dir, std::string node)
      : run_dir_(std::move(run_dir)), node_(std::move(node)) {}

  /// Lists the requests of the run, and reads those that are new. Returns those for ranks of this node, each once. One
  /// that another user made is left alone, and so is one that is older than kRequestLife_s; if this node is the first
  /// that it names, such an old one is removed.
  /// @param now  seconds since 1970.
  std::vector<FoundRequest> look(double now);

 private:
  std::filesystem::path run_dir_;
  std::string node_;
  std::map<std::string, StackRequest> known_;  // by name: those that are there and were read
};

/// Reads the stacks and writes the answer of this node, which may take kEachStack_s for each.
/// @param memory_file  the file of `memory`.
void answer_request(const FoundRequest& request, const SharedMemory& memory, const std::filesystem::path& memory_file);

}  // namespace athanor::board

#pragma once
// What `athanor status --stacks` shows of chosen ranks: the calls of their groups from the board, and their stacks.

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "board/run_status.h"
#include "board/stack_request.h"

namespace athanor::board {

struct ShownStack {
  SeenRank seen;
  std::optional<RankStack> stack;
  std::string why_none;  ///< if there is no stack
};

/// What the collectors of other nodes have answered to one request.
struct NodeAnswers {
  std::map<std::string, StackAnswer> by_node;
  double waited_s = 0;   ///< for a node to begin
  std::string why_none;  ///< if they could not be asked
};

struct ShownStacks {
  std::vector<ShownStack> ranks;
  std::vector<std::string> unanswered;  ///< nodes that have not begun to answer
};

/// Asks for the stacks of ranks: the collector of this node on its socket, all others through the run's folder, which
/// takes as long as the slowest node (StackQuestion::wait), at least until they look next. @throws ConfigError if
/// ATHANOR_BOARD is wrong.
ShownStacks ask_for_shown_stacks(const std::filesystem::path& run_dir, const RunStatus& status,
                                 const std::vector<int>& ranks);

/// Puts answers together. @param own  the answer of this node's collector; nothing: it has none, and was asked as
/// others.
ShownStacks shown_stacks(const RunStatus& status, const std::vector<int>& ranks,
                         const std::optional<std::vector<RankStack>>& own, const NodeAnswers& others);

/// Returns the lines for people, and the same as JSON (docs/board.md).
std::string stacks_text(const ShownStacks& shown);
nlohmann::ordered_json stacks_json(const std::vector<ShownStack>& shown);

}  // namespace athanor::board

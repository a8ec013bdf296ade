#pragma once
// What `athanor status --stacks` shows of chosen ranks: the calls of their groups from the board, and their stacks.

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "board/run_status.h"
#include "board/stacks.h"

namespace athanor::board {

struct ShownStack {
  SeenRank seen;
  std::optional<RankStack> stack;
  std::string why_none;  ///< if there is no stack
};

/// @param stacks  the answer of this node's collector; nothing: it has none.
std::vector<ShownStack> shown_stacks(const std::string& run, const RunStatus& status, const std::vector<int>& ranks,
                                     const std::optional<std::vector<RankStack>>& stacks);

/// Returns the lines for people, and the same as JSON (docs/board.md).
std::string stacks_text(const std::vector<ShownStack>& shown);
nlohmann::ordered_json stacks_json(const std::vector<ShownStack>& shown);

}  // namespace athanor::board

#pragma once
// The stacks of ranks: what `athanor status --stacks` asks the collector of its node for.

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "board/board.h"
#include "board/place.h"

namespace athanor::board {

struct RankStack {
  int rank = 0, process = 0;
  /// "debugger": of all threads, read from outside; "signal": of the thread that trains, which wrote it itself; "none"
  std::string how;
  std::string text;  ///< lines, innermost function of each thread first; for "none" the reason
};

/// Reads the stacks of those ranks of this node that are asked for, which takes up to some seconds for each, and passes
/// each to `take` when it is read. First the program athanor-stacks next to this program is tried, then the process is
/// asked itself. A process is stopped while its stack is read, and continues afterwards. At most kMostStacks are read.
void read_stacks(const SharedMemory& memory, const std::filesystem::path& memory_file,
                 const std::function<bool(const Identity&)>& is_asked,
                 const std::function<void(const RankStack&)>& take);
inline constexpr size_t kMostStacks = 16;

/// The text of one process, by either way. @param reader  the program; "": none.
RankStack read_stack_of(int rank, pid_t process, const std::filesystem::path& reader,
                        const std::filesystem::path& memory_file);

nlohmann::ordered_json to_json(const std::vector<RankStack>& stacks);
/// @throws nlohmann::json::exception if they are none.
std::vector<RankStack> stacks_in(const nlohmann::json& json);

/// The answer of a collector on its socket, one line, and what it holds. @throws DataError if it is none.
std::string stacks_to_json(const std::vector<RankStack>& stacks);
std::vector<RankStack> parse_stacks(const std::string& text);

/// Asks the collector of this node on its socket; nothing if there is none. @throws ConfigError if ATHANOR_BOARD is
/// wrong.
std::optional<std::vector<RankStack>> ask_for_stacks(const std::filesystem::path& run_dir,
                                                     const std::vector<int>& ranks);

}  // namespace athanor::board

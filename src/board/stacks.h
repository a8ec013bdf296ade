#pragma once
// The stacks of ranks: what `athanor status --stacks` asks the collector of its node for.

#include <sys/types.h>

#include <filesystem>
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

/// Reads the stacks of those of the ranks that have a process on this node, which takes up to some seconds for each.
/// First the program athanor-stacks next to this program is tried, then the process is asked itself. A process is
/// stopped while its stack is read, and continues afterwards.
/// @param ranks  numbers in the job, at most kMostStacks of which are read.
std::vector<RankStack> read_stacks(const SharedMemory& memory, const std::filesystem::path& memory_file,
                                   const std::vector<int>& ranks);
inline constexpr size_t kMostStacks = 16;

/// The text of one process, by either way. @param reader  the program; "": none.
RankStack read_stack_of(int rank, pid_t process, const std::filesystem::path& reader,
                        const std::filesystem::path& memory_file);

/// The answer of a collector, one line, and what it holds. @throws DataError if it is none.
std::string stacks_to_json(const std::vector<RankStack>& stacks);
std::vector<RankStack> parse_stacks(const std::string& text);

/// Asks the collector of this node; nothing if there is none. @throws ConfigError if ATHANOR_BOARD is wrong.
std::optional<std::vector<RankStack>> ask_for_stacks(const std::filesystem::path& run_dir,
                                                     const std::vector<int>& ranks);

}  // namespace athanor::board

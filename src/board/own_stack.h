#pragma once
// How a process writes its own stack when it is asked to, where no other process may read it.
//
// The signal is SIGURG: a process that has no handler ignores it. The handler opens a new file next to the board,
// writes the stack of the thread that trains and the word "end", and closes it. It calls nothing that locks or
// allocates.

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

namespace athanor::board {

/// Returns the file into which a process writes its stack.
std::filesystem::path own_stack_file(const std::filesystem::path& memory, pid_t process);

/// From now on this process writes its stack when it is asked to. If it has a handler for SIGURG already, that stays.
void write_own_stack_when_asked(const std::filesystem::path& memory);

/// Asks a process for its stack, and removes the file. @return its lines, innermost function first; nothing if it has
/// no handler (it could also have been stopped), or has not written within `patience`.
std::optional<std::string> ask_for_own_stack(const std::filesystem::path& memory, pid_t process,
                                             std::chrono::milliseconds patience);

}  // namespace athanor::board

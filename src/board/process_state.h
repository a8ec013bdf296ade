#pragma once
// Whether a process of this node lives, as the kernel's /proc reports it.

#include <sys/types.h>

#include <cstdint>

namespace athanor::board {

enum class ProcessState { kRunning, kStopped, kGone };

/// Returns when a process began, in ticks since the node was started: with its number, this names one process for good.
/// Returns 0 if there is no such process.
uint64_t start_of_process(pid_t process);

/// Returns the state of the process with this number and start: kGone if another process has the number by now, or if
/// only its exit code is left; kStopped after SIGSTOP, and under a debugger.
ProcessState state_of_process(pid_t process, uint64_t start);

}  // namespace athanor::board

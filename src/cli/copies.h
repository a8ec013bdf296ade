#pragma once
// Checks if the chosen command may run as several processes: as the ranks of one job, or as copies that only read.

namespace CLI {
class App;
}

namespace athanor {

/// Refuses a command that does not fit what started us (base/launched.h).
/// @throws ConfigError, before anything is written.
void refuse_several_processes(const CLI::App& app);

}  // namespace athanor

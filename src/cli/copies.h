#pragma once
// Checks if the chosen command may run as several processes: as the ranks of one job, or as copies that only read.

namespace CLI {
class App;
}

namespace athanor::inline cli {

/// Checks the chosen subcommand. `train`, `verify` and the benchmarks of jobs must not be copies that cannot find one
/// another; commands that only read may be anything; all others must be a single process (base/launched.h).
/// @throws ConfigError, before anything is written.
void refuse_several_processes(const CLI::App& app);

/// True if the chosen subcommand reads a configuration, and announces armed faults itself when that is not refused.
bool reads_configuration(const CLI::App& app);

}  // namespace athanor::inline cli

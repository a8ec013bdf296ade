#pragma once
// Whether a spare host works, found out before a run relies on it.

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>

#include "launch/launcher_command.h"

namespace athanor::launch {

/// What a probe is given. A launcher, libtorch and the devices of a node may need a minute to start.
inline constexpr std::chrono::seconds kProbeLimit{120};

/// Starts `athanor probe` on the host alone, by the launcher of the plan and with as many ranks as a node has. It uses
/// what a training uses: the launcher's way to the host, the program and its libraries there, every device, memory,
/// messages between the ranks, and the file system of `folder`, in which probe-HOST.txt has its output.
/// @param gives_up  asked now and then; true: the probe is ended, and the host did not pass it.
bool passes_probe(const LaunchPlan& plan, const Surroundings& here, const std::string& own_program,
                  const std::string& host, const std::filesystem::path& folder, const std::function<bool()>& gives_up);

/// The plan of that start.
LaunchPlan probe_plan(const LaunchPlan& plan, const std::string& own_program, const std::string& host,
                      const std::filesystem::path& folder);

}  // namespace athanor::launch

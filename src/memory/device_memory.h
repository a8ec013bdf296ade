#pragma once
// The check that the device of each rank has the memory which the run will need there.

#include <string>
#include <vector>

#include "comm/world.h"
#include "config/run_config.h"
#include "layout/layout.h"

namespace athanor::inline memory {

/// What a rank needs on its device by the estimate of layout/memory.h, and what is free there, in bytes.
struct DeviceMemory {
  double need = 0;
  double free = -1;  ///< −1: it is not known

  double lack() const { return free < 0 ? 0 : need - free; }
};

/// Returns why devices have too little memory: the rank that lacks most, with the parts of its need and the settings
/// that make it fit, and in a second line the other ranks that lack memory. Empty: all have enough.
/// @param ranks, hosts  one for each rank.
std::string find_lacking_memory(const RunConfig& config, const std::vector<DeviceMemory>& ranks,
                                const std::vector<std::string>& hosts, at::Device own);

/// Compares the estimate for each rank with what is free on its device, and logs both for this rank. Collective over
/// the world; to be called before the state is allocated.
/// @throws ConfigError on all ranks, with the faults of all ranks.
void check_device_memory(const RunConfig& config, comm::World& world, at::Device device);

/// Returns the hosts of the ranks as numbers, for the estimate (opened_groups).
std::vector<int> number_hosts(const std::vector<std::string>& hosts);

}  // namespace athanor::inline memory

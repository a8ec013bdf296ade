#pragma once
// The devices of a job's ranks: each rank chooses its own, and all agree that they fit together before anything else
// is made.

#include <string>
#include <vector>

#include "comm/world.h"
#include "config/run_config.h"
#include "ops/tensor.h"

namespace athanor::inline run {

/// What one rank reports of its device.
struct RankDevice {
  std::string kind;   ///< "cuda", "cpu"; empty if the rank has found a fault
  std::string name;   ///< its model: "NVIDIA H200"; empty if it is not known
  std::string id;     ///< differs between the devices of a host; empty if it is not known
  std::string build;  ///< program and libtorch, with their versions
  std::string fault;  ///< why the rank has no device
};

/// Returns, in one line for each, why the ranks cannot be one job: a rank without a device, devices or builds that
/// differ, a device that two ranks share. Empty: they can.
/// @param ranks, hosts  one for each rank.
/// @param setting       the field or option that chooses devices, for messages.
std::vector<std::string> find_device_faults(const std::vector<RankDevice>& ranks, const std::vector<std::string>& hosts,
                                            const std::string& setting = "train.device");

/// Chooses this rank's device by train.device and makes it the thread's current one. Collective.
/// @throws ConfigError on all ranks, with the faults of all ranks.
at::Device agree_on_devices(const RunConfig& config, comm::World& world);
/// The same for a name that another setting has, such as "--device".
at::Device agree_on_devices(const std::string& name, const std::string& setting, comm::World& world);

}  // namespace athanor::inline run

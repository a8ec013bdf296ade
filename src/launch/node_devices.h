#pragma once
// The devices of this node, of any vendor: what one rank each is for.
//
// The files of the kernel are read first, which takes microseconds and cannot hang: the folders of NVIDIA's driver in
// /proc, the topology of AMD's (kfd), and the PCI devices in /sys with a vendor, a class and a NUMA node. Only if they
// show nothing, and there is no PCI in /sys at all (a container, WSL), the vendors' tools are asked, with a limit on
// their time. Then the variables by which jobs are restricted to some of the devices apply.

#include <string>
#include <string_view>
#include <vector>

#include "launch/surroundings.h"

namespace athanor::launch {

enum class Vendor { kNone, kNvidia, kAmd, kIntel };

/// "NVIDIA", "AMD", "Intel".
const char* vendor_name(Vendor vendor);

/// What one rank computes on: a GPU, or a part that programs see as a device (a GCD of AMD, a tile of Intel).
struct Device {
  std::string id;    ///< as the variables of its vendor name it: "3", or "1.0" for a tile
  std::string uuid;  ///< "GPU-893f36ab-..." if it is known
  int numa = -1;     ///< its NUMA node; −1 if that is not known
};

struct NodeDevices {
  Vendor vendor = Vendor::kNone;
  std::string model = {};            ///< as the driver or tool names it; may be empty
  int cards = 0;                     ///< as they were found, before restrictions
  std::vector<Device> devices = {};  ///< in the order in which programs number them
  std::string from = {};             ///< "/proc/driver/nvidia/gpus"
  std::string restriction = {};      ///< "CUDA_VISIBLE_DEVICES=0,1" if a variable has left some out
};

/// Returns those of one vendor: the first of NVIDIA, AMD and Intel that has some.
/// @throws ConfigError if a variable names a device that does not exist.
NodeDevices find_devices(const Surroundings& here);

// What the tools of vendors print, which find_devices starts only if the kernel's files show no devices.

/// Reads `nvidia-smi -L`. A GPU that is cut into parts (MIG) counts as its parts.
NodeDevices parse_nvidia_smi(std::string_view text);

/// Reads `rocm-smi --showid --showtoponuma`: a GCD is a GPU there.
NodeDevices parse_rocm_smi(std::string_view text);

/// Reads `xpu-smi discovery`, which lists cards. The Max 1550 has two tiles.
NodeDevices parse_xpu_smi(std::string_view text);

/// Reads `lspci`: names of vendors and classes, without numbers. Graphics of processors do not count.
NodeDevices parse_lspci(std::string_view text);

}  // namespace athanor::launch

#pragma once
// What the tools of vendors print about the devices of a node. They are started only if the kernel's files show no
// devices (node_devices.h).

#include <string_view>

#include "launch/node_devices.h"

namespace athanor::launch {

/// Reads `nvidia-smi -L`. A GPU that is cut into parts (MIG) counts as its parts.
NodeDevices parse_nvidia_smi(std::string_view text);

/// Reads `rocm-smi --showid --showtoponuma`: a GCD is a GPU there.
NodeDevices parse_rocm_smi(std::string_view text);

/// Reads `xpu-smi discovery`, which lists cards. The Max 1550 has two tiles.
NodeDevices parse_xpu_smi(std::string_view text);

/// Reads `lspci`: names of vendors and classes, without numbers. Graphics of processors do not count.
NodeDevices parse_lspci(std::string_view text);

}  // namespace athanor::launch

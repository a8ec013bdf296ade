#pragma once
// Outputs of the kernels' sources, compiled for a single level of x86-64 each, without the loader's choice.

#include <string>
#include <utility>
#include <vector>

namespace athanor::isa_levels {

using Outputs = std::vector<std::pair<std::string, std::vector<unsigned char>>>;

Outputs baseline();
Outputs v3();  ///< call it only on a CPU that has this level

}  // namespace athanor::isa_levels

#pragma once
// The same sources, compiled for one level of x86-64 each and free of the loader's choice.

#include <string>
#include <utility>
#include <vector>

namespace athanor::isa_levels {

using Outputs = std::vector<std::pair<std::string, std::vector<unsigned char>>>;

Outputs baseline();
Outputs v3();  ///< only on a CPU that has it

}  // namespace athanor::isa_levels

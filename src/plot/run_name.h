#pragma once
// How a run is called in a legend.

#include <string>

namespace athanor {

/// Returns the path of a run or a file as it was given, normalised; of "." the name of the folder.
std::string name_of_run(const std::string& given);

}  // namespace athanor

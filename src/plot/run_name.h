#pragma once
// How a run is called in a legend.

#include <string>
#include <vector>

namespace athanor::inline plot {

/// Returns the path of a run or a file as it was given, normalised; of "." the name of the folder.
std::string name_of_run(const std::string& given);

/// Drops the leading folders that all of the names share; of one name, nothing.
std::vector<std::string> without_common_folders(std::vector<std::string> names);

}  // namespace athanor::inline plot

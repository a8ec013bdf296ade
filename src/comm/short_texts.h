#pragma once
// A short text of each rank, such as the name of its host, on all ranks.

#include <string>
#include <vector>

#include "comm/communicator.h"

namespace athanor::comm {

/// Returns every rank's text, by rank. Collective over `all`; one all-gather of 256 bytes for each rank; waits.
/// @param text  of this rank; what is beyond 255 bytes is cut, as is everything after a null character.
std::vector<std::string> all_gather_texts(Communicator& all, const std::string& text);

}  // namespace athanor::comm

#pragma once
// A short text of each rank, such as the name of its host, on all ranks.

#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace athanor::comm {

/// Enough for the name of a host, of which Linux allows 64 bytes, or of a processor, which has 48.
inline constexpr int64_t kShortText = 256;

/// Returns every rank's text, by rank. Collective over `all`; one all-gather of `room` bytes for each rank; waits.
/// @param text  of this rank; what is beyond room - 1 bytes is cut, as is everything after a null character.
/// @param room  the same on all ranks.
std::vector<std::string> all_gather_texts(Communicator& all, const std::string& text, int64_t room = kShortText);

}  // namespace athanor::comm

#pragma once
// One rank's bytes on all ranks of a group.

#include <string>
#include <vector>

#include "comm/communicator.h"
#include "ops/tensor.h"

namespace athanor {

/// How what one rank has read reaches the others: a broadcast, or an all-reduce to which the others add zeros. The
/// results are the same; machines differ in which of the two they have tuned.
enum class SharedBy { kBroadcast, kAllReduce };
SharedBy parse_shared_by(const std::string& name);

/// `x` of the group's first rank, on all of them, bit for bit, whatever its type. Contiguous, a multiple of 8 bytes.
/// Collective; waits.
void share_from_first(comm::Communicator& ranks, const Tensor& x, SharedBy how);

/// The group's first rank's text, on all of them. Collective; waits.
std::string text_of_first(comm::Communicator& ranks, const std::string& text);
/// Every rank's text, by rank, on the first one; nothing on the others. Collective; waits.
std::vector<std::string> texts_on_first(comm::Communicator& ranks, const std::string& text);

}  // namespace athanor

#pragma once
// Copies one rank's bytes to all ranks of a group.

#include <string>
#include <vector>

#include "comm/communicator.h"
#include "ops/tensor.h"

namespace athanor {

/// The way data read by one rank reach the others: a broadcast, or an all-reduce to which the others add zeros. The
/// results are equal; machines differ in which of the two they have tuned.
enum class SharedBy { kBroadcast, kAllReduce };
SharedBy parse_shared_by(const std::string& name);

/// Copies `x` of the group's first rank to all of them, bit for bit, whatever its type. It is contiguous, a multiple of
/// 8 bytes. Collective; waits.
void share_from_first(comm::Communicator& ranks, const Tensor& x, SharedBy how);

/// Returns the text of the group's first rank, on all of them. Collective; waits.
std::string broadcast_text(comm::Communicator& ranks, const std::string& text);
/// Returns every rank's text, by rank, on the first one; an empty vector on the others. Collective; waits.
std::vector<std::string> gather_texts(comm::Communicator& ranks, const std::string& text);

}  // namespace athanor

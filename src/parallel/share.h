#pragma once
// Gives one rank's bytes to all ranks of a group, or all ranks' texts to one.

#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "config/checkpoint_config.h"
#include "ops/tensor.h"

namespace athanor::inline parallel {

/// Overwrites `x` on every rank with that of the group's first rank, bit for bit, whatever its type. `x` has the same
/// size on all ranks, a multiple of 8 bytes, and is contiguous, where the group's tensors are. Collective; waits as
/// Pending::wait.
void share_from_first(comm::Communicator& ranks, const Tensor& x, SharedBy how);

/// Waits for a collective; what callers may put in its place watches the wait.
inline void wait_for_pending(comm::Pending& pending) { pending.wait(); }

/// Returns the `text` of one rank of the group, on all of them; the others' is ignored. Collective; waits.
std::string broadcast_text(comm::Communicator& ranks, const std::string& text,
                           const std::function<void(comm::Pending& pending)>& wait = wait_for_pending, int root = 0);
/// Returns every rank's text, by rank, on the first one; an empty vector on the others. Collective; waits.
std::vector<std::string> gather_texts(comm::Communicator& ranks, const std::string& text,
                                      const std::function<void(comm::Pending& pending)>& wait = wait_for_pending);
/// Returns the first rank's text that is not empty, on all ranks; "" if all are. Collective; waits.
std::string first_of_any(comm::Communicator& ranks, const std::string& text);

}  // namespace athanor::inline parallel

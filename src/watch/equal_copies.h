#pragma once
// Finds memory of which several ranks hold copies that should be equal and are not.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "comm/communicator.h"

namespace athanor::inline watch {

/// A difference between the ranks of a group.
struct UnequalCopies {
  size_t index = 0;                   ///< which of the compared numbers is the first that differs
  std::vector<int> wrong_ranks = {};  ///< in the group, ascending: those without the value that most ranks have
  bool is_known = true;               ///< false: no value is that of most ranks, and wrong_ranks are all of them
};

/// Compares numbers of which each rank of the group has the same list, if all is right. Collective over the group: a
/// maximum, and if ranks differ a gather of one number. The result is the same on all ranks.
std::optional<UnequalCopies> find_unequal_copies(comm::Communicator& group, std::span<const int64_t> numbers);

}  // namespace athanor::inline watch

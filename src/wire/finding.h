#pragma once
// The result of a search for late ranks (roll_call.h), as one rank sends it to others.
//
// In a group of thousands all ranks time out at about the same time. Then the first rank of the group searches, and the
// others ask it for what it found: one question for each rank instead of up to 256.

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace athanor::comm {

/// A rank that others wait for and that waits for no other.
struct Late {
  int rank;                                  ///< in the world
  bool answers;                              ///< true: its process answered, but has not come; false: it is silent
  int64_t worked = 0, still_ms = INT64_MAX;  ///< see Answer
  int awaited_by = -1;  ///< a rank that waits for it in a call other than the one the look began with; −1: in that one
  std::string group;    ///< the group in which awaited_by waits
};

/// The content of a message: of one size, without pointers.
struct Finding {
  static constexpr size_t kMaxLate = 8;  ///< further late ranks are left out

  struct One {
    int32_t rank = 0, answers = 0, awaited_by = -1;
    int64_t worked = 0, still_ms = 0;
    std::array<char, 32> group{};  ///< truncated
  };
  int32_t num_late = -1;  ///< −1: not known
  std::array<One, kMaxLate> late{};

  bool known() const { return num_late >= 0; }

  static Finding of(const std::vector<Late>& all) {
    Finding finding;
    finding.num_late = static_cast<int32_t>(std::min(all.size(), kMaxLate));
    for (size_t i = 0; i < std::min(all.size(), kMaxLate); ++i) {
      const Late& one = all[i];
      finding.late[i] = {one.rank, one.answers, one.awaited_by, one.worked, one.still_ms, {}};
      one.group.copy(finding.late[i].group.data(), finding.late[i].group.size() - 1);
    }
    return finding;
  }

  std::vector<Late> list() const {
    std::vector<Late> all;
    for (int32_t i = 0; i < num_late; ++i) {
      const One& one = late[static_cast<size_t>(i)];
      all.push_back({one.rank, one.answers != 0, one.worked, one.still_ms, one.awaited_by, one.group.data()});
    }
    return all;
  }
};

}  // namespace athanor::comm

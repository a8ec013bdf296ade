#pragma once
// Data that a rank could not read, as all ranks learn of it: at one place between two steps, so that they can still
// save together what they have.

#include <exception>
#include <string>

#include "base/error.h"
#include "base/exit_codes.h"
#include "comm/communicator.h"

namespace athanor {

/// Thrown by every rank at the same place.
class UnreadData : public Error {
 public:
  /// @param rank  in the world: the first that could not read. @param own  what this rank has met; "" if nothing.
  UnreadData(int rank, const std::string& own)
      : Error(own.empty() ? "rank " + std::to_string(rank) + " could not read its data" : own, exit_code::kIo),
        rank_(rank) {}
  int rank() const { return rank_; }

 private:
  int rank_;
};

/// What this rank's reading threw, in words; "" for null.
std::string describe_unread(const std::exception_ptr& own);

/// Collective over the world, an all-reduce of 8 bytes. @throws UnreadData on every rank if `own` is not null on one.
void agree_on_reading(comm::Communicator& world, const std::exception_ptr& own);

}  // namespace athanor

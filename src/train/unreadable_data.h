#pragma once
// Reports data that a rank could not read to all ranks, at one place between two steps, so that they can still save
// together what they have.

#include <exception>
#include <string>

#include "base/error.h"
#include "base/exit_codes.h"
#include "comm/communicator.h"

namespace athanor::inline train {

/// Thrown by every rank between the same two steps. The exit code is that of failed I/O.
class UnreadableData : public Error {
 public:
  /// @param rank  the first rank of the world that could not read.
  /// @param own  the error of this rank's reading; "" if there is none.
  UnreadableData(int rank, const std::string& own)
      : Error(own.empty() ? "rank " + std::to_string(rank) + " could not read its data" : own, exit_code::kIo),
        rank_(rank) {}
  int rank() const { return rank_; }

 private:
  int rank_;
};

/// Returns the message of the exception that this rank's reading threw; "" for null.
std::string describe_read_error(const std::exception_ptr& own);

/// Checks that every rank could read. Collective over the world: an all-reduce of 8 bytes.
/// @param own  the exception that this rank's reading threw; null if it could read.
/// @throws UnreadableData on every rank if `own` is not null on one.
void agree_on_reading(comm::Communicator& world, const std::exception_ptr& own);

}  // namespace athanor::inline train

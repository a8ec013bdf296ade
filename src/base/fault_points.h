#pragma once
// The points at which ATHANOR_FAULT (base/fault.h) can make the program fail, each with the failure that it simulates.
//
// Add a new point as a line here, in the order of names. A call of fault_point or fault_errno with a name that is not
// here does not compile.

#include <optional>
#include <string_view>

namespace athanor {

struct FaultPoint {
  std::string_view name;
  std::string_view plays;      ///< the failure that it simulates, for messages
  bool answers_errno = false;  ///< the point calls fault_errno: enospc and eio are possible in addition to signals
};

inline constexpr bool kAnswersErrno = true;

inline constexpr FaultPoint kFaultPoints[] = {
    {"append.write", "a line of metrics or of a log that cannot be appended", kAnswersErrno},
    {"bench.result", "a kernel whose result is wrong, so that its benchmark must refuse to time it", kAnswersErrno},
    {"checkpoint.before_commit", "the end of a process when all pieces are written and the checkpoint is not yet one"},
    {"checkpoint.commit", "the end of a process while it makes a checkpoint of what was written"},
    {"checkpoint.copy", "the end of a process while it copies its part of a checkpoint"},
    {"checkpoint.hide", "an old checkpoint that cannot be removed", kAnswersErrno},
    {"checkpoint.local_commit",
     "the end of a process while nodes agree on a local checkpoint, or remove the one before"},
    {"checkpoint.open", "a file of a checkpoint that cannot be opened for reading", kAnswersErrno},
    {"checkpoint.piece", "a piece of a checkpoint that cannot be written, or the end of its writer", kAnswersErrno},
    {"checkpoint.remove", "the end of a process while it removes an old checkpoint"},
    {"checkpoint.sync", "a disk that takes long to store a file of a checkpoint, or the end of its writer"},
    {"data.read", "a row of a shard that can no longer be read", kAnswersErrno},
    {"eval.after_window", "the end of an evaluation between two windows of documents"},
    {"export.before_commit", "the end of a process when a model folder is written and not yet in its place"},
    {"export.block", "a part of a model folder that cannot be written, or the end of its writer", kAnswersErrno},
    {"files.write", "a file that cannot be written", kAnswersErrno},
    {"folder.before_rename", "the end of a process between writing a folder and giving it its name"},
    {"lock.take", "a file system that knows no locks", kAnswersErrno},
    {"prepare.before_commit", "the end of prepare before the finished folder takes its place"},
    {"prepare.before_gather", "the end of prepare between the token stream and the shards"},
    {"prepare.chunk", "the end of prepare after a chunk of documents"},
    {"prepare.committed", "the end of prepare after the manifest is in its place"},
    {"prepare.moved", "the end of prepare after a shard was moved into its place"},
    {"prepare.scatter", "the end of prepare while rows are scattered into buckets"},
    {"prepare.scattered", "the end of prepare after all rows were scattered"},
    {"prepare.shard", "the end of prepare after a shard"},
    {"train.after_step", "the end of a run between two steps"},
    {"train.save", "a checkpoint or a model for which there is no room", kAnswersErrno},
    {"yeet.chunk", "the end of a node that has written a chunk of a transfer"},
    {"yeet.place", "the end of a node between writing a file of a transfer and giving it its name"},
    {"yeet.read", "a source of a transfer that can no longer be read", kAnswersErrno},
    {"yeet.write", "a chunk of a transfer that a node cannot write", kAnswersErrno},
};

/// Returns the point of this name, or nothing. It returns no pointer, since GCC compares none with null in a constant
/// expression under -fsanitize=undefined.
constexpr std::optional<FaultPoint> find_fault_point(std::string_view name) {
  for (const FaultPoint& point : kFaultPoints) {
    if (point.name == name) return point;
  }
  return {};
}

}  // namespace athanor

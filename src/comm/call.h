#pragma once
// The description of a collective on which its ranks have to agree: it is used in messages, compared in check mode, and
// gives the bytes that each rank sends.

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/collective.h"
#include "comm/communicator.h"

namespace c10d {
class Work;
}

namespace athanor::comm {

/// The part of a call that is the same on all ranks.
struct CallRecord {
  int64_t number = 0;  ///< number of the call in its group, from 0
  Collective collective = Collective::kBarrier;
  int32_t type = 0;        ///< at::ScalarType
  int64_t bytes = 0;       ///< size of the larger tensor, or of a row in an uneven all-to-all
  int32_t root = -1;       ///< root of a broadcast, peer of a send or receive, else −1
  int32_t reduction = -1;  ///< Reduction, or −1 if nothing is reduced
};

/// Returns text like "all_reduce of 4096 bytes (float), sum".
std::string describe(const CallRecord& record);

/// Returns the bytes that `rank` sends to each rank of a group of `size`.
/// @param wide_bytes  size of an element in the type in which sums are added.
/// @param in_rows     rows to each rank, read only for an uneven all-to-all.
/// @param shape       how the ranks lie on nodes, if the backend uses it.
std::vector<int64_t> bytes_to_each(const CallRecord& record, int64_t element_bytes, int64_t wide_bytes,
                                   std::span<const int64_t> in_rows, int rank, int size, const NodeShape& shape = {});

// Check mode

/// Returns what a rank sends the others for comparison: its record, and sums over its rows (of an uneven all-to-all,
/// zeros otherwise) whose total over ranks is zero if every rank expects what is sent to it. Its length does not depend
/// on the size of the group.
std::vector<int64_t> packed(const CallRecord& record, std::span<const int64_t> out_rows,
                            std::span<const int64_t> in_rows, int rank);
/// Returns the first disagreement among all ranks' packed records, with the ranks named by `who`; empty if there is
/// none. All ranks get the same text.
std::string disagreement(std::span<const int64_t> all, int size, const std::vector<std::string>& who);

// The collectives that a group has queued on a device, by which one that is stuck can be named.
//
// A Work of libtorch holds the tensors of its call: NCCL's for as long as it lives. So it is kept only until the
// caller's stream waits for it; from then on an event tells whether the call is complete.

class DeviceCall {
 public:
  /// @param watch  a stream on which nothing but the ends of calls of one group is waited for.
  DeviceCall(const CallRecord& record, c10::intrusive_ptr<c10d::Work> work, c10::Stream watch);
  ~DeviceCall();
  DeviceCall(const DeviceCall&) = delete;
  DeviceCall& operator=(const DeviceCall&) = delete;

  const CallRecord& record() const { return record_; }
  /// To be called when a stream of the caller waits for the call: lets go of the Work, and so of the tensors.
  void let_go();
  bool is_complete() const;
  /// What the device's library reports of the call; null if nothing, or if its Work is gone.
  std::exception_ptr exception() const;

 private:
  CallRecord record_;
  c10::intrusive_ptr<c10d::Work> work_;
  c10::Stream watch_;
  std::optional<c10::Event> end_;
};

/// The calls of one group. All are for tensors of one device.
class DeviceCalls {
 public:
  std::shared_ptr<DeviceCall> add(const CallRecord& record, const c10::intrusive_ptr<c10d::Work>& work,
                                  c10::Device device);
  /// The oldest that is not complete, or null.
  const DeviceCall* oldest_incomplete();
  /// The oldest of which the library reports an exception, or null.
  const DeviceCall* oldest_failed() const;

 private:
  void drop_complete();

  std::optional<c10::Stream> watch_;
  /// Those that are not complete, and others until the list has grown to look_at_.
  std::vector<std::shared_ptr<DeviceCall>> calls_;
  size_t look_at_ = 0;
};

}  // namespace athanor::comm

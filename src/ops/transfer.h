#pragma once
// Every copy between host and device, and every wait of the host for a device, goes through these functions, which
// count them. On a CPU a tensor is where the host is: nothing is copied, nothing is waited for, and nothing is counted.
//
// Copies are queued on the current stream of the tensor's device, and pass through pinned memory of the host.

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "ops/tensor.h"

namespace athanor::ops {

/// What this process has done since it began.
struct TransferCounts {
  int64_t copies_to_device = 0, copies_to_host = 0, waits = 0;

  TransferCounts operator-(const TransferCounts& other) const {
    return {copies_to_device - other.copies_to_device, copies_to_host - other.copies_to_host, waits - other.waits};
  }
};
TransferCounts transfer_counts();

/// Returns `x`, a tensor of the host or of `device`, on `device`: `x` itself if it is there. The host does not wait,
/// and may change a tensor that was sent afterwards.
Tensor send(const Tensor& x, at::Device device);

/// Sets `to`, a contiguous tensor of any device, to the bytes at `from`. The host waits. Threads may call it as
/// fetch_bytes.
void send_bytes(const Tensor& to, const void* from);

/// Copies the elements of `x`, a contiguous tensor of any device, to `out`. The host waits. Threads may call it
/// concurrently; together they use a bounded amount of pinned memory.
void fetch_bytes(const Tensor& x, void* out);

/// A tensor on its way to the host. A meta tensor, which has no values, becomes ones.
class Fetch {
 public:
  /// Starts the copy.
  explicit Fetch(const Tensor& x);
  /// Waits, and returns the tensor of the host.
  const Tensor& get();

 private:
  Tensor on_host_;
  std::optional<c10::Event> copied_;  // none if there is nothing to wait for
};

/// Returns memory of the host as a tensor, [values.size()] fp32.
Tensor view_of(std::span<float> values);

/// Returns fp32 memory of the host without values, [count], into which copies from `device` can be queued: pinned if
/// `device` has memory of its own.
Tensor empty_on_host(int64_t count, at::Device device);

/// Returns where the elements of `x`, contiguous, are fp32 in memory of the host; null if they are of another type or
/// elsewhere.
float* fp32_on_host(const Tensor& x);

/// Copies from a device to the host while the device does other work: they are queued on a separate stream, after the
/// work that is on the caller's current stream at the time of a call.
class FetchAside {
 public:
  /// On a CPU the functions below copy at once.
  explicit FetchAside(at::Device device);

  /// Calls `queue`, whose work is queued on that stream. It may make tensors on the device; the tensors that it reads
  /// must not change before follow().
  void run(const std::function<void()>& queue);
  /// To be called within run(): sets `on_host`, contiguous and pinned, to the elements of `x`.
  static void copy(const Tensor& x, const Tensor& on_host);
  /// Queues the copy of elements [first, first + pinned.size()) to pinned memory.
  using Copies = std::function<void(int64_t first, std::span<float> pinned)>;
  /// Returns that for fp32 elements that are made of `memory`; empty if it is the host's, which is read where it is.
  /// @param part  returns elements [first, first + count), fp32.
  static Copies copies_of(const Tensor& memory, std::function<Tensor(int64_t first, int64_t count)> part);
  /// Work that is queued on the current stream from now on runs after the copies. The host does not wait.
  void follow() const;
  /// Returns whether the copies of the last run() are complete. Any thread may call it, but not during run().
  bool done() const;

 private:
  at::Device device_;
  std::optional<c10::Stream> stream_;
  std::optional<c10::Event> copied_;
};

/// Returns `x` on the host. The host waits.
inline Tensor fetch(const Tensor& x) { return Fetch(x).get(); }

/// Returns the value of a tensor of one element. The host waits.
template <class T>
T fetch_item(const Tensor& x) {
  return fetch(x).template item<T>();
}

/// While the object lives, a wait of the host for a device asks every second whether it should continue; for devices
/// that wait for other ranks, which may never come. There is one at a time in a thread; waits of other threads do not
/// ask.
class WaitWatch {
 public:
  /// @param look  gets the seconds that the host has waited so far, and throws to end the wait.
  explicit WaitWatch(std::function<void(double seconds)> look);
  ~WaitWatch();
  WaitWatch(const WaitWatch&) = delete;
  WaitWatch& operator=(const WaitWatch&) = delete;

 private:
  std::function<void(double seconds)> look_;
};

/// Waits until the current stream of `device` has done everything.
void wait_for(at::Device device);

// Numbers that a device has computed, on their way to the host in one copy.

/// Brings tensors of type fp64 and int64 to the host: each becomes one there, of its shape. Those of a device travel in
/// one copy, for which the host waits once; those of the host stay as they are. A meta tensor, which has no values,
/// becomes ones: numbers of a step that a guard lets pass.
void fetch_together(std::span<Tensor* const> tensors);

/// Returns the values of fp64 and int64 tensors one after the other, int64 [n], fp64 as its bits.
Tensor pack_numbers(std::span<Tensor* const> tensors);

/// Sets each tensor to what pack_numbers took from one of its shape and type, as a view of `packed`.
void unpack_numbers(const Tensor& packed, std::span<Tensor* const> tensors);

}  // namespace athanor::ops

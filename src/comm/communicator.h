#pragma once
// A group of ranks and its collectives. The backend is ours over MPI, libtorch's over NCCL or XCCL, none for a group of
// one rank, or a fake without peers.
//
// A group is for tensors of the host or for those of a device. On a device, calls are queued on streams of the group,
// after what the caller's current stream has at that moment; Pending::wait queues too, and the host does not wait.
//
// Every call except send and receive is collective over the group: all of its ranks make the same calls in the same
// order. A call starts at once, or when earlier calls of the group are complete if many are in flight, and continues
// while the caller computes. It is complete when the returned Pending reports so; until then nothing may read or write
// its tensors. Ranks of different groups never wait for one another. Only one thread of a process may use a
// communicator.
//
// Sums run along one binary tree over the index in the group: sum(lo, hi) = sum(lo, mid) + sum(mid, hi), where mid − lo
// is the largest power of two below hi − lo. Elements narrower than 32 bits are added in fp32 and rounded once, at the
// end. So the bits of a sum depend on the group's order alone, and an aligned block of ranks whose size is a power of
// two can be summed beforehand.

#include <c10/util/intrusive_ptr.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/collective.h"
#include "base/span_log.h"
#include "board/publisher.h"
#include "wire/node_shape.h"

namespace at {
class Tensor;
}
namespace c10d {
class Backend;
class Work;
}  // namespace c10d

namespace athanor::comm {

// The bytes and calls of a communicator, counted when a call starts.

struct Traffic {
  int64_t calls = 0;
  /// By collective; an uneven all-to-all counts as kAllToAll.
  std::map<Collective, int64_t> calls_of;
  std::map<Collective, int64_t> bytes_of;  ///< sent by this rank
  std::vector<int64_t> bytes_to;           ///< sent to each rank of the group
  int64_t bytes_inside = 0;                ///< sent within this rank's supernode
  int64_t bytes_outside = 0;               ///< sent out of this rank's supernode
  double waited_s = 0;                     ///< in Pending::wait and barriers
  /// Collectives that were started and not waited for, now and at most. Those of check mode count too; sends and
  /// receives between two ranks do not.
  int64_t in_flight = 0, most_in_flight = 0;

  int64_t bytes() const { return bytes_inside + bytes_outside; }
};

using at::Tensor;

enum class Reduction {
  kSum,
  kMean,  ///< scaled by a power of two before the addition, so that the mean is finite if its terms are
  kMax,
};

/// For groups of devices: sets `out` to the tree sums of terms[0], terms[1], …; terms [n, 1, count], out [1, count]. It
/// is queued on the current stream. Terms of 16 and 32 bits are added in fp32, and rounded once.
using SumTerms = void (*)(const Tensor& terms, const Tensor& out);

class Communicator;
class DeviceCalls;
class SendWatch;
class StallWatch;
class TrafficWatch;
struct CallRecord;

/// A handle of a collective that has been started. Copies refer to the same collective.
class Pending {
 public:
  Pending() = default;  ///< refers to no collective: done() is true
  bool done() const;
  /// Whether a device runs it, after what is queued there before it.
  bool is_queued() const;
  /// Returns when the collective is complete; the time counts as waited for (Traffic::waited_s). On a device it returns
  /// at once, and what the caller's current stream has from now on comes after the collective; so the tensors may then
  /// be used and freed as if it were complete.
  /// @throws CommError if a peer is gone or the group's timeout has passed; it names the collective and the missing
  ///        ranks with their hosts.
  void wait();
  /// On a device: lets the current stream wait for the collective, and leaves wait() to the caller, before which the
  /// tensors must live.
  void follow() const;

 private:
  friend class Communicator;
  struct State;
  explicit Pending(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

struct GroupOptions {
  std::string name;                ///< used in messages and metrics: "data", "expert"
  std::vector<int> world_ranks;    ///< the members' ranks in the world, in the group's order
  std::vector<std::string> hosts;  ///< the members' hosts, for messages; may be empty
  std::string device = {};         ///< this rank's, for messages: "cuda:2"; empty for host tensors
  /// The members' supernodes, to separate traffic inside and outside; empty: all in one.
  std::vector<int> supernode;
  /// How the members lie on nodes, if sums and gathers of the backend take two levels (HostBackend).
  NodeShape shape = {};
  std::chrono::milliseconds timeout{std::chrono::minutes(30)};  ///< limit for one collective
  /// If true, the ranks compare their calls before each collective. A mismatch is then a CommError that names ranks and
  /// both calls, instead of a hang or garbage. This costs one round trip for each collective.
  bool check = false;
  board::Publisher board = {};  ///< shows the calls of the group, and the waits for those of the host
};

/// The calls that must not wait for one another. A device's library runs the calls of one backend one after the other,
/// and a message is not sent before its receiver is ready; so two ranks that send to each other first would both wait.
enum class Lane {
  kCollectives,
  kUp,    ///< messages to a rank with a higher index in the group
  kDown,  ///< messages to a rank with a lower index
};

/// Returns the backend of a lane; called once for each, when the lane is first used.
using OpenLane = std::function<c10::intrusive_ptr<c10d::Backend>(Lane)>;

class Communicator {
 public:
  /// @param backend  for all lanes; null for a group of one.
  Communicator(GroupOptions options, c10::intrusive_ptr<c10d::Backend> backend, int rank);
  /// A group for tensors of a device.
  /// @param host  a group of the same ranks for host tensors, over which check mode compares calls.
  Communicator(GroupOptions options, OpenLane open, int rank, std::shared_ptr<Communicator> host);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }  ///< this process's rank in the group, from 0
  int size() const { return static_cast<int>(options_.world_ranks.size()); }
  const std::string& name() const { return options_.name; }
  const GroupOptions& options() const { return options_; }

  // Tensors are contiguous, on one device, of one type: bf16, fp16, fp32, fp64 or int64 (any type if nothing is
  // reduced). A mean of int64 in host memory throws CommError. Below, n is the size of the group and b the bytes of the
  // larger tensor; the bytes sent are those of one rank.

  /// Reduces `x` in place. Sends 2·b·(n−1)/n. For a tensor of up to 8 KiB it sends b to each of at most ⌈log₂ n⌉ ranks
  /// instead. One more rank gets the terms, in the type in which they are added.
  Pending all_reduce(const Tensor& x, Reduction reduction = Reduction::kSum);
  /// Sums `in`, which is n parts of `out`'s size: rank r receives in `out` the sum of all ranks' parts r. `out` may be
  /// part r of `in`; the other parts of `in` are then left as they are. Sends b·(n−1)/n.
  Pending reduce_scatter(const Tensor& out, const Tensor& in, Reduction reduction = Reduction::kSum);
  /// Gathers every rank's `in` into `out`, which is n parts of `in`'s size, in the order of ranks. `in` may be part
  /// rank() of `out`. Sends b·(n−1)/n. In groups of more than 16 ranks on host memory, up to 4 MiB are sent
  /// differently: b to each of at most ⌈log₂ n⌉ ranks, and up to b/2 to one more.
  Pending all_gather(const Tensor& out, const Tensor& in);
  /// Sends part p of `in` to rank p, and receives part p of `out` from it. Sends b·(n−1)/n.
  Pending all_to_all(const Tensor& out, const Tensor& in);
  /// Uneven all-to-all of rows (of dim 0): in_rows[p] rows go to rank p, in order, and out_rows[p] rows come from it.
  /// Both lists have n counts that add up to the rows of `in` and of `out`. Nothing is sent for a count of 0.
  Pending all_to_all(const Tensor& out, const Tensor& in, std::span<const int64_t> out_rows,
                     std::span<const int64_t> in_rows);
  /// Sends `x` of `root`, a rank of the group, to all. Each rank receives b once and sends it on to at most ⌈log₂ n⌉
  /// others.
  Pending broadcast(const Tensor& x, int root);
  /// Send a message to a rank of the group, or receive one from it. Only the two ranks make these calls; the messages
  /// of a pair are matched in order.
  Pending send(const Tensor& x, int to);
  Pending receive(const Tensor& x, int from);
  /// Returns when every rank of the group has called it. Only in groups for host tensors.
  void barrier();

  /// On a device: returns the oldest call that is not complete, as messages have it ("all_gather of 3 MB (number 7) of
  /// group data"); empty if all are. What a send or receive waits for is not among them.
  /// @throws CommError naming this rank, if the device's library reports an error of a call.
  std::string oldest_incomplete();

  /// Shows `watch` what this rank sends in collectives from now on; null: to no one. It must outlive the group, or be
  /// replaced before its end. Messages (send) are not shown.
  void show_sends(SendWatch* watch) { watch_ = watch; }
  /// Shows `watch` the bytes of each call from now on; null: to no one. It must outlive the group, or be replaced
  /// before its end.
  void show_traffic(TrafficWatch* watch) { traffic_watch_ = watch; }
  /// On a device: shows `watch` where streams of the caller wait for the calls that begin from now on, messages too.
  /// Calls keep it as long as they are not complete.
  void show_stalls(std::shared_ptr<StallWatch> watch) { stalls_ = std::move(watch); }
  /// Makes the calls that begin from now on log themselves: as spans in flight, from their start until they are
  /// complete, and as waits of the thread that trains. On a device a span ends when the host has queued the wait. Null:
  /// no more.
  void record_spans(std::shared_ptr<SpanLog> spans) { spans_ = std::move(spans); }
  /// Returns the number of collectives of the group that this rank has begun.
  int64_t num_calls() const { return num_calls_; }

  /// Returns the counts since the group was made, or since the last reset.
  const Traffic& traffic() const { return *traffic_; }
  void reset_traffic();

 private:
  struct Call;
  using Run = c10::intrusive_ptr<c10d::Work> (*)(c10d::Backend&, const Call&);
  Pending start(Call call, Run run, Lane lane = Lane::kCollectives);
  Pending start_pair(Call call, int from, int to, Run run);
  void start_check(const Call& call, Pending::State& state);
  c10d::Backend& backend(Lane lane);
  void count(const Call& call);
  void throw_reported_error();
  void show(const Call& call) const;

  GroupOptions options_;
  std::shared_ptr<const std::vector<std::string>> names_;  ///< the members' names, for messages
  OpenLane open_;                                          ///< null for a group of one
  std::array<c10::intrusive_ptr<c10d::Backend>, 3> lanes_;
  std::shared_ptr<Communicator> host_;      ///< null in a group for host tensors
  std::unique_ptr<DeviceCalls> on_device_;  ///< the calls of a group for tensors of a device
  board::GroupEntry board_;
  int rank_;
  int64_t num_calls_ = 0, num_pair_calls_ = 0;  ///< pairs are counted separately: the other ranks make no such call
  SendWatch* watch_ = nullptr;
  TrafficWatch* traffic_watch_ = nullptr;
  std::shared_ptr<StallWatch> stalls_;
  std::shared_ptr<SpanLog> spans_;
  std::shared_ptr<Traffic> traffic_;  ///< a Pending may outlive its group
};

}  // namespace athanor::comm

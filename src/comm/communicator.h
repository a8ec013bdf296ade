#pragma once
// A group of ranks and its collectives, whatever carries them: MPI through a backend of ours, NCCL or XCCL through
// libtorch's, nothing at all for a group of one, or a fake without peers.
//
// Every call is collective over the group: all of its ranks make the same calls in the same order. Each starts at once,
// goes on while the caller computes, and is over when the Pending it answers says so; until then nobody touches its
// tensors. Ranks of different groups never wait for one another. One thread of a process talks to a communicator.
//
// Sums run along one binary tree over the index in the group: sum(lo, hi) = sum(lo, mid) + sum(mid, hi), where mid − lo
// is the largest power of two below hi − lo. Elements narrower than 32 bits are added in fp32 and rounded once, at the
// end. So a sum's bits depend on the group's order alone, and an aligned power of two of ranks can be summed
// beforehand.

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/traffic.h"

namespace at {
class Tensor;
}
namespace c10d {
class Backend;
class Work;
}  // namespace c10d

namespace athanor::comm {

using at::Tensor;

enum class Reduction {
  kSum,
  kMean,  ///< scaled by a power of two before it is added up, so that it is finite where its terms are
  kMax,
};

class Communicator;

/// A collective that has been started. Copies are handles of the same one.
class Pending {
 public:
  Pending() = default;  ///< of nothing: done
  bool done() const;
  /// Answers when the collective is over; the time counts as waited for.
  /// @throws CommError: a peer is gone, or the group's timeout is over; it names the collective and the ranks that are
  ///         missing, with their hosts.
  void wait();

 private:
  friend class Communicator;
  struct State;
  explicit Pending(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

struct GroupOptions {
  std::string name;                ///< in messages and metrics: "data", "expert"
  std::vector<int> world_ranks;    ///< of the members, in the group's order
  std::vector<std::string> hosts;  ///< of the members, for messages; may be empty
  std::vector<int> supernode;      ///< of the members, for the traffic inside and outside; empty: all in one
  std::chrono::milliseconds timeout{std::chrono::minutes(30)};  ///< of one collective
  /// Before each collective the ranks compare what they are about to do. A mismatch is a CommError that names ranks and
  /// both calls, where it would have been a hang or garbage. Costs a round trip for each collective.
  bool check = false;
};

class Communicator {
 public:
  /// @param backend  null for a group of one.
  Communicator(GroupOptions options, c10::intrusive_ptr<c10d::Backend> backend, int rank);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }  ///< of this process in the group
  int size() const { return static_cast<int>(options_.world_ranks.size()); }
  const std::string& name() const { return options_.name; }
  const GroupOptions& options() const { return options_; }

  // Tensors are contiguous, on one device, of one type: bf16, fp16, fp32, fp64 or int64 (bytes too where nothing is
  // added). n is the size of the group, b the bytes of the larger tensor; bytes sent are those of one rank.

  /// In place. Sends 2·b·(n−1)/n, or, for small tensors, at most 2·b·⌈log₂ n⌉ in the wide type.
  Pending all_reduce(const Tensor& x, Reduction reduction = Reduction::kSum);
  /// `in` is n parts of `out`'s size; rank r gets the sum of all parts r. `out` may be part r of `in`, and then the
  /// other parts of `in` stay as they are. Sends b·(n−1)/n.
  Pending reduce_scatter(const Tensor& out, const Tensor& in, Reduction reduction = Reduction::kSum);
  /// `out` is n parts of `in`'s size; `in` may be part `rank()` of `out`. Sends b·(n−1)/n.
  Pending all_gather(const Tensor& out, const Tensor& in);
  /// Part p of `in` goes to rank p, part p of `out` comes from it. Sends b·(n−1)/n.
  Pending all_to_all(const Tensor& out, const Tensor& in);
  /// Rows (of dim 0): in_rows[p] of them go to rank p, in order, and out_rows[p] come from it. Nothing is sent where
  /// there are none.
  Pending all_to_all(const Tensor& out, const Tensor& in, std::span<const int64_t> out_rows,
                     std::span<const int64_t> in_rows);
  /// From `root` (of the group) to all. Each rank receives b once and sends it on to at most ⌈log₂ n⌉ others.
  Pending broadcast(const Tensor& x, int root);
  /// Between two ranks of the group; matched in order.
  Pending send(const Tensor& x, int to);
  Pending receive(const Tensor& x, int from);
  /// Every rank has come here. Waits.
  void barrier();

  const Traffic& traffic() const { return *traffic_; }
  void reset_traffic();

 private:
  struct Call;
  using Run = c10::intrusive_ptr<c10d::Work> (*)(c10d::Backend&, const Call&);
  Pending start(Call call, Run run);
  Pending start_pair(Call call, int peer, Run run);
  void count(const Call& call);

  GroupOptions options_;
  std::shared_ptr<const std::vector<std::string>> names_;  ///< of the members, for messages
  c10::intrusive_ptr<c10d::Backend> backend_;
  int rank_;
  int64_t num_calls_ = 0, num_pair_calls_ = 0;  ///< pairs count for themselves: the others make no such call
  std::shared_ptr<Traffic> traffic_;            ///< a Pending may outlive its group
};

}  // namespace athanor::comm

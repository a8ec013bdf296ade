#pragma once
// Collectives between the devices that the host plays (guarded/device.h), for tests: as a device's library, they are
// queued on separate streams, one for the collectives of a group and one for the messages of each pair in a group,
// and each waits for what the caller's stream had when it was called. What they read and write are the memories of the
// devices at the time when the queues come to them. The bytes travel over a group of the host, whose sums have the
// order of the tree. If the devices keep time (guarded/queues.h), a call is over on a rank when it is reached by the
// last of those whose data it needs; their times travel with the data.

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>

#include "comm/device/open.h"
#include "comm/thread_ranks.h"
#include "guarded/device.h"
#include "guarded/open_view.h"

namespace athanor::comm {

/// What the groups do otherwise than at first. Tests set it while no group exists.
struct GuardedWays {
  /// The calls of all groups of a device take turns, in the order in which they were queued, as on a device that has
  /// room for the kernel of one of them. Messages still travel at any time.
  bool one_at_a_time = false;

  // Faults of code that uses groups, as it would be if the caller made them.
  bool no_event_before_sends = false;  ///< a message does not wait for what the caller's stream computes
  /// Where a call has an input apart from its output, it reads a copy of it, which is freed at once. kKept: the memory
  /// is not used again before the call has ended (record_stream).
  enum class Copies { kNone, kKept, kReused } copies = Copies::kNone;

  /// The last call of each device, for one_at_a_time.
  std::array<guarded::Queues::Event, guarded::kMostDevices> last = {};
};
inline GuardedWays& guarded_ways() {
  static GuardedWays ways;
  return ways;
}

/// A call whose turn has come. As on a device, one that fails is never over.
struct GuardedTurn {
  std::shared_ptr<std::atomic<bool>> group_failed;
  Pending pending = {};
  std::exception_ptr failure = {};
  Pending times_pending = {};
  at::Tensor times_ms = {};  ///< from the ranks that it meets, [ranks] fp64; undefined: no time is kept

  void fails() {
    failure = std::current_exception();
    *group_failed = true;
  }

  bool over() {
    if (failure || !pending.done() || !times_pending.done()) return false;
    try {
      pending.wait();
      times_pending.wait();
    } catch (...) {
      fails();
    }
    return !failure;
  }
};

/// A call that has been queued.
/// It holds the call's output, as NCCL's does, so that a Work that is kept for too long shows in the device's memory.
class GuardedWork : public c10d::Work {
 public:
  GuardedWork(int device, guarded::Queues::Event done, std::shared_ptr<GuardedTurn> turn, at::Tensor output)
      : device_(device), done_(std::move(done)), turn_(std::move(turn)), output_(std::move(output)) {}

  std::exception_ptr exception() const override { return turn_->failure; }

  bool isCompleted() override { return guarded::queues(device_).query(done_); }
  bool isSuccess() const override { return true; }
  void synchronize() override {
    const guarded::OnDevice on(device_);
    guarded::queues(device_).block(guarded::current_stream(), done_);
  }
  bool wait(std::chrono::milliseconds) override {
    synchronize();
    return true;
  }

 private:
  int device_;
  guarded::Queues::Event done_;
  std::shared_ptr<GuardedTurn> turn_;
  at::Tensor output_;
};

class GuardedGroup : public c10d::Backend {
 public:
  using Work = c10::intrusive_ptr<c10d::Work>;

  explicit GuardedGroup(const DeviceGroupStart& start)
      : Backend(start.rank, start.size), device_(start.device.index()), carrier_(start.carrier),
        timeout_(start.timeout), num_exceptions_(std::uncaught_exceptions()) {}
  /// Ends what has been queued together with the other ranks, as NCCL does it, before the wire below it is closed. If
  /// this rank has failed, it waits for none.
  ~GuardedGroup() override {
    guarded::Queues& queues = guarded::queues(device_);
    try {
      bool ended = std::uncaught_exceptions() <= num_exceptions_;
      for (const auto& [lane, stream] : streams_) ended = ended && queues.run_out(stream, timeout_);
      if (!ended) queues.forget_all();
    } catch (const std::exception&) {
      queues.forget_all();
    }
  }

  const std::string getBackendName() const override { return "guarded"; }
  c10d::ErrorType getError() override { return *failed_ ? c10d::ErrorType::COMM_ERROR : c10d::ErrorType::SUCCESS; }

  Work allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override {
    return queue(kCollectives, {tensors[0]}, [op = reduction(options.reduceOp)](Communicator& c, const Tensors& x) {
      return c.all_reduce(x[0], op);
    });
  }
  Work _reduce_scatter_base(at::Tensor& out, at::Tensor& in, const c10d::ReduceScatterOptions& options) override {
    return queue(kCollectives, {out, in}, [op = reduction(options.reduceOp)](Communicator& c, const Tensors& x) {
      return c.reduce_scatter(x[0], x[1], op);
    });
  }
  Work _allgather_base(at::Tensor& out, at::Tensor& in, const c10d::AllgatherOptions&) override {
    return queue(kCollectives, {out, in}, [](Communicator& c, const Tensors& x) { return c.all_gather(x[0], x[1]); });
  }
  Work alltoall_base(at::Tensor& out, at::Tensor& in, std::vector<int64_t>& out_rows, std::vector<int64_t>& in_rows,
                     const c10d::AllToAllOptions&) override {
    if (out_rows.empty())
      return queue(kCollectives, {out, in}, [](Communicator& c, const Tensors& x) { return c.all_to_all(x[0], x[1]); });
    return queue(
        kCollectives, {out, in},
        [out_rows, in_rows](Communicator& c, const Tensors& x) { return c.all_to_all(x[0], x[1], out_rows, in_rows); },
        [from = ones_of(out_rows), to = ones_of(in_rows)](Communicator& c, double time_ms, at::Tensor& times_ms) {
          times_ms = at::empty({std::ranges::count(from, 1)}, at::kDouble);
          return c.all_to_all(times_ms, at::full({std::ranges::count(to, 1)}, time_ms, at::kDouble), from, to);
        });
  }
  Work broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override {
    return queue(kCollectives, {tensors[0]},
                 [root = static_cast<int>(options.rootRank)](Communicator& c, const Tensors& x) {
                   return c.broadcast(x[0], root);
                 });
  }
  Work send(std::vector<at::Tensor>& tensors, int to, int) override {
    return queue(
        to, {tensors[0]}, [to](Communicator& c, const Tensors& x) { return c.send(x[0], to); },
        [to](Communicator& c, double time_ms, at::Tensor& times_ms) {
          times_ms = at::full({1}, time_ms, at::kDouble);
          return c.send(times_ms, to);
        },
        /*sends=*/true);
  }
  Work recv(std::vector<at::Tensor>& tensors, int from, int) override {
    return queue(
        from, {tensors[0]}, [from](Communicator& c, const Tensors& x) { return c.receive(x[0], from); },
        [from](Communicator& c, double, at::Tensor& times_ms) {
          times_ms = at::empty({1}, at::kDouble);
          return c.receive(times_ms, from);
        });
  }

 private:
  using Tensors = std::vector<at::Tensor>;
  static constexpr int kCollectives = -1;
  /// Starts to tell the time of this rank's stream to the ranks that a call meets, whose times come into a tensor.
  using Meet = std::function<Pending(Communicator&, double time_ms, at::Tensor& times_ms)>;

  static Pending meet_all(Communicator& c, double time_ms, at::Tensor& times_ms) {
    times_ms = at::full({1}, time_ms, at::kDouble);
    return c.all_reduce(times_ms, Reduction::kMax);
  }
  static std::vector<int64_t> ones_of(std::vector<int64_t> rows) {
    for (int64_t& each : rows) each = std::min<int64_t>(each, 1);
    return rows;
  }
  static void meet(GuardedTurn& turn, guarded::Queues& queues, guarded::Queues::StreamId stream) {
    if (turn.times_ms.defined() && turn.times_ms.numel() > 0)
      queues.advance_to(stream, turn.times_ms.max().item<double>());
  }

  static Reduction reduction(const c10d::ReduceOp& op) {
    switch (static_cast<c10d::ReduceOp::RedOpType>(op)) {
      case c10d::ReduceOp::AVG: return Reduction::kMean;
      case c10d::ReduceOp::MAX: return Reduction::kMax;
      default: return Reduction::kSum;
    }
  }

  template <class Start>
  Work queue(int lane, Tensors tensors, Start start, Meet meets = &meet_all, bool sends = false) {
    const guarded::OnDevice on(device_);
    guarded::Queues& queues = guarded::queues(device_);
    GuardedWays& ways = guarded_ways();
    const at::Tensor output = sends ? at::Tensor() : tensors.front();
    const auto [found, is_new] = streams_.try_emplace(lane, 0);
    if (is_new) found->second = queues.new_stream();
    const auto stream = found->second;
    if (ways.copies != GuardedWays::Copies::kNone && (sends || tensors.size() > 1)) {
      tensors.back() = tensors.back().clone();
      if (ways.copies == GuardedWays::Copies::kKept)
        guarded::memory(device_).note_use(tensors.back().data_ptr(), stream);
    }
    if (!sends || !ways.no_event_before_sends) queues.block(stream, queues.record(guarded::current_stream()));
    auto& last = ways.last.at(static_cast<size_t>(device_));
    const bool takes_turns = ways.one_at_a_time && lane == kCollectives;
    if (takes_turns && last) queues.block(stream, last);
    std::vector<guarded::OpenView> views;
    for (const at::Tensor& each : tensors) views.emplace_back(each);
    const auto turn = std::make_shared<GuardedTurn>(failed_);
    queues.submit(stream, "collective", [turn, views, start, meets, &queues, stream, carrier = carrier_] {
      Tensors opened;
      for (const auto& view : views) opened.push_back(view.tensor());
      try {
        turn->pending = start(*carrier, opened);
        if (queues.keeps_time()) turn->times_pending = meets(*carrier, queues.time_ms(stream), turn->times_ms);
      } catch (...) {
        turn->fails();
      }
    });
    queues.submit_when(stream, "collective", [turn, &queues, stream] {
      const bool over = turn->over();
      if (over) meet(*turn, queues, stream);
      return over;
    });
    const guarded::Queues::Event done = queues.record(stream);
    if (takes_turns) last = done;
    return c10::make_intrusive<GuardedWork>(device_, done, turn, output);
  }

  int device_;
  std::shared_ptr<Communicator> carrier_;
  std::chrono::milliseconds timeout_;
  int num_exceptions_;
  std::shared_ptr<std::atomic<bool>> failed_ = std::make_shared<std::atomic<bool>>(false);
  std::map<int, guarded::Queues::StreamId> streams_;
};

template <class Group>
c10::intrusive_ptr<c10d::Backend> open_guarded(const DeviceGroupStart& start) {
  return c10::make_intrusive<Group>(start);
}

/// From now on devices that the host plays have groups, and advance by themselves.
inline void play_groups(OpenGuarded open = &open_guarded<GuardedGroup>) {
  guarded::install_for_tests();
  guarded::let_devices_advance();
  set_guarded_groups(open);
}

/// Runs `rank` once for each rank of a world of `size`, as run_ranks does, each with a guarded device of its own as the
/// thread's current one. Of the exceptions of ranks it throws the first; others are often due to it.
inline void run_device_ranks(int size, const std::function<void(World&, at::Device)>& rank, WorldOptions options = {},
                             const ThreadNetwork& network = {}, OpenGuarded open = &open_guarded<GuardedGroup>) {
  options.timeout = std::min<std::chrono::milliseconds>(options.timeout, std::chrono::minutes(1));
  play_groups(open);
  std::mutex mutex;
  std::exception_ptr first;
  const auto run = [&](World& world) {
    const guarded::OnDevice on(world.rank());
    try {
      rank(world, guarded::device_with(world.rank()));
      guarded::queues().synchronize_all();
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
      for (int r = 0; r < size; ++r) guarded::queues(r).abandon();  // the others wait for no rank that does not come
      throw;
    }
  };
  for (int r = 0; r < size; ++r) {
    guarded::queues(r).set_order({});
    guarded::queues(r).keep_time(0);
  }
  guarded_ways().last = {};
  try {
    run_ranks(size, run, options, network);
  } catch (...) {
    std::rethrow_exception(first ? first : std::current_exception());
  }
}

}  // namespace athanor::comm

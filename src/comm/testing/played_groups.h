#pragma once
// Collectives between the devices that the host plays (guarded/device.h), for tests: as a device's library, they are
// queued on separate streams, one for the collectives of a group and one for the messages of each pair in a group,
// and each waits for what the caller's stream had when it was called. What they read and write are the memories of the
// devices at the time when the queues come to them. The bytes travel over a group of the host, whose sums have the
// order of the tree.

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <map>
#include <mutex>

#include "comm/device/open.h"
#include "comm/thread_ranks.h"
#include "guarded/device.h"
#include "guarded/open_view.h"

namespace athanor::comm {

/// A call whose turn has come. As on a device, one that fails is never over.
struct PlayedTurn {
  Pending pending;
  std::exception_ptr failure;

  bool over() {
    if (failure || !pending.done()) return false;
    try {
      pending.wait();
    } catch (...) {
      failure = std::current_exception();
    }
    return !failure;
  }
};

/// A call that has been queued.
class PlayedWork : public c10d::Work {
 public:
  PlayedWork(int device, guarded::Queues::Event done, std::shared_ptr<PlayedTurn> turn)
      : device_(device), done_(std::move(done)), turn_(std::move(turn)) {}

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
  std::shared_ptr<PlayedTurn> turn_;
};

class PlayedGroup : public c10d::Backend {
 public:
  using Work = c10::intrusive_ptr<c10d::Work>;

  explicit PlayedGroup(const DeviceGroupStart& start)
      : Backend(start.rank, start.size), device_(start.device.index()), carrier_(start.carrier) {}

  const std::string getBackendName() const override { return "played"; }

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
    return queue(kCollectives, {out, in}, [out_rows, in_rows](Communicator& c, const Tensors& x) {
      return out_rows.empty() ? c.all_to_all(x[0], x[1]) : c.all_to_all(x[0], x[1], out_rows, in_rows);
    });
  }
  Work broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override {
    return queue(kCollectives, {tensors[0]},
                 [root = static_cast<int>(options.rootRank)](Communicator& c, const Tensors& x) {
                   return c.broadcast(x[0], root);
                 });
  }
  Work send(std::vector<at::Tensor>& tensors, int to, int) override {
    return queue(to, {tensors[0]}, [to](Communicator& c, const Tensors& x) { return c.send(x[0], to); });
  }
  Work recv(std::vector<at::Tensor>& tensors, int from, int) override {
    return queue(from, {tensors[0]}, [from](Communicator& c, const Tensors& x) { return c.receive(x[0], from); });
  }

 private:
  using Tensors = std::vector<at::Tensor>;
  static constexpr int kCollectives = -1;

  static Reduction reduction(const c10d::ReduceOp& op) {
    switch (static_cast<c10d::ReduceOp::RedOpType>(op)) {
      case c10d::ReduceOp::AVG: return Reduction::kMean;
      case c10d::ReduceOp::MAX: return Reduction::kMax;
      default: return Reduction::kSum;
    }
  }

  template <class Start>
  Work queue(int lane, const Tensors& tensors, Start start) {
    const guarded::OnDevice on(device_);
    guarded::Queues& queues = guarded::queues(device_);
    const auto [found, is_new] = streams_.try_emplace(lane, 0);
    if (is_new) found->second = queues.new_stream();
    const auto stream = found->second;
    queues.block(stream, queues.record(guarded::current_stream()));
    std::vector<guarded::OpenView> views;
    for (const at::Tensor& each : tensors) views.emplace_back(each);
    const auto turn = std::make_shared<PlayedTurn>();
    queues.submit(stream, "collective", [turn, views, start, carrier = carrier_] {
      Tensors opened;
      for (const auto& view : views) opened.push_back(view.tensor());
      turn->pending = start(*carrier, opened);
    });
    queues.submit_when(stream, "collective", [turn] { return turn->over(); });
    return c10::make_intrusive<PlayedWork>(device_, queues.record(stream), turn);
  }

  int device_;
  std::shared_ptr<Communicator> carrier_;
  std::map<int, guarded::Queues::StreamId> streams_;
};

template <class Group>
c10::intrusive_ptr<c10d::Backend> open_played(const DeviceGroupStart& start) {
  return c10::make_intrusive<Group>(start);
}

/// Runs `rank` once for each rank of a world of `size`, as run_ranks does, each with a played device of its own as the
/// thread's current one. Of the exceptions of ranks it throws the first; others are often due to it.
inline void run_device_ranks(int size, const std::function<void(World&, at::Device)>& rank, WorldOptions options = {},
                             const ThreadNetwork& network = {}, OpenPlayed open = &open_played<PlayedGroup>) {
  options.timeout = std::min<std::chrono::milliseconds>(options.timeout, std::chrono::minutes(1));
  guarded::install_for_tests();
  guarded::let_devices_advance();
  set_played_groups(open);
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
      guarded::queues().forget_all();
      throw;
    }
  };
  try {
    run_ranks(size, run, options, network);
  } catch (...) {
    std::rethrow_exception(first ? first : std::current_exception());
  }
}

}  // namespace athanor::comm

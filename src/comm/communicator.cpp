#include "comm/communicator.h"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "comm/call.h"
#include "comm/pending_state.h"
#include "comm/watches.h"

namespace athanor::comm {

namespace {

/// Returns names of members as users know them, by their rank in the world: "rank 3 (host b)".
std::vector<std::string> names_of_members(const GroupOptions& options) {
  std::vector<std::string> names;
  for (size_t i = 0; i < options.world_ranks.size(); ++i) {
    std::string name = fmt::format("rank {}", options.world_ranks[i]);
    if (i < options.hosts.size() && !options.hosts[i].empty()) name += fmt::format(" ({})", options.hosts[i]);
    names.push_back(std::move(name));
  }
  return names;
}

thread_local TrafficPurpose sends_for = TrafficPurpose::kLosses;

}  // namespace

SendsFor::SendsFor(TrafficPurpose purpose) : before_(std::exchange(sends_for, purpose)) {}
SendsFor::~SendsFor() { sends_for = before_; }

struct Communicator::Call {
  CallRecord record;
  Tensor out, in;  ///< both are the same tensor if there is only one
  std::vector<int64_t> out_rows = {}, in_rows = {};
};

Communicator::Communicator(GroupOptions options, OpenLane open, int rank, std::shared_ptr<Communicator> host)
    : options_(std::move(options)),
      names_(std::make_shared<const std::vector<std::string>>(names_of_members(options_))), host_(std::move(host)),
      board_(size() > 1 ? options_.board : board::Publisher(), options_.name, options_.world_ranks,
             host_ ? "device" : "host"),
      rank_(rank), traffic_(std::make_shared<Traffic>()) {
  ATHANOR_ASSERT(rank >= 0 && rank < size() && (open || size() == 1));
  if (size() > 1) open_ = std::move(open);
  if (host_) on_device_ = std::make_unique<DeviceCalls>();
  reset_traffic();
}

Communicator::Communicator(GroupOptions options, c10::intrusive_ptr<c10d::Backend> backend, int rank)
    : Communicator(std::move(options), backend ? [backend](Lane) { return backend; } : OpenLane(), rank, nullptr) {
  ATHANOR_ASSERT(!backend || (backend->getSize() == size() && backend->getRank() == rank));
}

c10d::Backend& Communicator::backend(Lane lane) {
  auto& opened = lanes_.at(static_cast<size_t>(lane));
  if (!opened) opened = open_(lane);
  return *opened;
}

Communicator::~Communicator() = default;

void Communicator::reset_traffic() {
  const int64_t in_flight = traffic_->in_flight;
  *traffic_ = Traffic{};
  traffic_->in_flight = traffic_->most_in_flight = in_flight;
  traffic_->bytes_to.assign(static_cast<size_t>(size()), 0);
}

namespace {

void check_tensors(const std::string& group, const CallRecord& record, const Tensor& out, const Tensor& in,
                   int64_t out_n, int64_t in_n) {
  const char* name = collective_name(record.collective);
  if (!out.is_contiguous() || !in.is_contiguous())
    fail<Error>("bug: {} of group {} needs contiguous tensors", name, group);
  if (out.scalar_type() != in.scalar_type() || out.device() != in.device()) {
    fail<Error>("bug: {} of group {} between tensors of different types or devices", name, group);
  }
  if (out.numel() * out_n != in.numel() * in_n) {
    fail<Error>("bug: {} of group {}: {} elements in, {} out", name, group, in.numel(), out.numel());
  }
}

CallRecord record_of(Collective collective, const Tensor& larger, int root = -1, int reduction = -1) {
  return {0,    collective, static_cast<int32_t>(larger.scalar_type()), static_cast<int64_t>(larger.nbytes()),
          root, reduction};
}

c10d::ReduceOp reduce_op(int32_t reduction) {
  switch (static_cast<Reduction>(reduction)) {
    case Reduction::kSum: return c10d::ReduceOp::SUM;
    case Reduction::kMean: return c10d::ReduceOp::AVG;
    case Reduction::kMax: return c10d::ReduceOp::MAX;
  }
  return c10d::ReduceOp::UNUSED;
}

}  // namespace

void Communicator::count(const Call& call) {
  const int64_t element = static_cast<int64_t>(call.in.defined() ? call.in.element_size() : 0);
  const std::vector<int64_t> to =
      bytes_to_each(call.record, element, std::max<int64_t>(element, 4), call.in_rows, rank_, size(), options_.shape);
  const bool uneven = call.record.collective == Collective::kUnevenAllToAll;
  const Collective collective = uneven ? Collective::kAllToAll : call.record.collective;
  ++traffic_->calls;
  ++traffic_->calls_of[collective];
  int64_t total = 0, inside = 0;
  const auto supernode = [&](size_t r) { return r < options_.supernode.size() ? options_.supernode[r] : 0; };
  for (size_t r = 0; r < to.size(); ++r) {
    traffic_->bytes_to[r] += to[r];
    total += to[r];
    if (supernode(r) == supernode(static_cast<size_t>(rank_))) inside += to[r];
  }
  traffic_->bytes_of[collective] += total;
  traffic_->bytes_inside += inside;
  traffic_->bytes_outside += total - inside;
  if (!traffic_watch_) return;
  const int peer = collective == Collective::kSend ? call.record.root : -1;
  traffic_watch_->sends(*this, {collective, sends_for, peer, total, inside});
}

// Starts to compare this call with those of the other ranks.
void Communicator::start_check(const Call& call, Pending::State& state) {
  const Tensor words = at::tensor(packed(call.record, call.out_rows, call.in_rows, rank_), at::kLong);
  state.records = at::empty({words.numel() * size()}, at::kLong);
  Tensor to = state.records, from = words;
  state.check = (host_ ? *host_ : *this).backend(Lane::kCollectives)._allgather_base(to, from, {});
}

void Communicator::show(const Call& call) const {
  const bool only_receives = call.record.collective == Collective::kBroadcast && call.record.root != rank_;
  if (only_receives || !call.in.defined() || !call.in.is_floating_point()) return;
  watch_->about_to_send(*this, call.record.number, call.in, call.record.reduction == static_cast<int>(Reduction::kMax));
}

Pending Communicator::start(Call call, Run run, Lane lane) {
  const bool between_two = lane != Lane::kCollectives;
  call.record.number = between_two ? num_pair_calls_++ : num_calls_++;
  count(call);
  if (watch_ && open_ && !between_two) show(call);
  if (!between_two) board_.start_collective(num_calls_);
  if (!open_) {
    if (call.out.defined() && !call.out.is_same(call.in) && call.out.data_ptr() != call.in.data_ptr()) {
      call.out.view({-1}).copy_(call.in.view({-1}));
    }
    return {};
  }
  auto state = std::make_shared<Pending::State>();
  state->group = options_.name;
  state->record = call.record;
  state->names = names_;
  state->timeout = options_.timeout;
  state->traffic = traffic_;
  state->on_device = host_ != nullptr;
  state->stalls = stalls_;
  state->board = board_.board();
  state->board_group = board_.index();
  state->spans = spans_;
  if (between_two) state->peer = options_.world_ranks[static_cast<size_t>(call.record.root)];
  state->begin_span();
  if (options_.check && !between_two) start_check(call, *state);
  state->work = run(backend(lane), call);
  if (on_device_ && !between_two) state->noted = on_device_->add(call.record, state->work, call.out.device());
  if (!between_two) state->enter_flight();
  return Pending(std::move(state));
}

namespace {

/// Returns what a device's library reports of a group for which it reports no single call; empty: nothing.
std::string reported(c10d::Backend& backend) {
  try {
    switch (backend.getError()) {
      case c10d::ErrorType::SUCCESS: return "";
      case c10d::ErrorType::TIMEOUT: return "a call was not over in its time";
      case c10d::ErrorType::REMOTE_ERROR: return "an error of another rank";
      default: return "an error of the communication";
    }
  } catch (const c10::Error&) {
    return "";  // it does not know its errors
  }
}

}  // namespace

void Communicator::throw_reported_error() {
  const auto fail_with = [&](const std::string& what, const std::string& text) {
    fail<CommError>("{}: {} of {} reports: {}", what, options_.device, (*names_)[static_cast<size_t>(rank_)], text);
  };
  if (const DeviceCall* failed = on_device_->oldest_failed()) {
    try {
      std::rethrow_exception(failed->exception());
    } catch (const std::exception& error) {
      fail_with(what_of(failed->record(), name()), first_line(error.what()));
    }
  }
  for (const auto& backend : lanes_) {
    const std::string text = backend ? reported(*backend) : "";
    if (text.empty()) continue;
    const DeviceCall* oldest = on_device_->oldest_incomplete();
    fail_with(oldest ? what_of(oldest->record(), name()) : "group " + name(),
              text + "; the log of this rank may have the library's own words");
  }
}

std::string Communicator::oldest_incomplete() {
  if (!on_device_) return "";
  throw_reported_error();
  const DeviceCall* oldest = on_device_->oldest_incomplete();
  return oldest ? what_of(oldest->record(), name()) : "";
}

Pending Communicator::all_reduce(const Tensor& x, Reduction reduction) {
  Call call{record_of(Collective::kAllReduce, x, -1, static_cast<int>(reduction)), x, x};
  check_tensors(name(), call.record, x, x, 1, 1);
  return start(std::move(call), [](c10d::Backend& backend, const Call& c) {
    c10d::AllreduceOptions options;
    options.reduceOp = reduce_op(c.record.reduction);
    std::vector<Tensor> tensors{c.out};
    return backend.allreduce(tensors, options);
  });
}

Pending Communicator::reduce_scatter(const Tensor& out, const Tensor& in, Reduction reduction) {
  Call call{record_of(Collective::kReduceScatter, in, -1, static_cast<int>(reduction)), out, in};
  check_tensors(name(), call.record, out, in, size(), 1);
  return start(std::move(call), [](c10d::Backend& backend, const Call& c) {
    c10d::ReduceScatterOptions options;
    options.reduceOp = reduce_op(c.record.reduction);
    Tensor to = c.out, from = c.in;
    return backend._reduce_scatter_base(to, from, options);
  });
}

Pending Communicator::all_gather(const Tensor& out, const Tensor& in) {
  Call call{record_of(Collective::kAllGather, out), out, in};
  check_tensors(name(), call.record, out, in, 1, size());
  return start(std::move(call), [](c10d::Backend& backend, const Call& c) {
    Tensor to = c.out, from = c.in;
    return backend._allgather_base(to, from, {});
  });
}

Pending Communicator::all_to_all(const Tensor& out, const Tensor& in) {
  Call call{record_of(Collective::kAllToAll, in), out, in};
  check_tensors(name(), call.record, out, in, 1, 1);
  if (in.numel() % size() != 0) {
    fail<Error>("bug: all_to_all of group {}: {} elements for {} ranks", name(), in.numel(), size());
  }
  return start(std::move(call), [](c10d::Backend& backend, const Call& c) {
    Tensor to = c.out, from = c.in;
    std::vector<int64_t> even_out, even_in;
    return backend.alltoall_base(to, from, even_out, even_in, {});
  });
}

Pending Communicator::all_to_all(const Tensor& out, const Tensor& in, std::span<const int64_t> out_rows,
                                 std::span<const int64_t> in_rows) {
  Call call{record_of(Collective::kUnevenAllToAll, in),
            out,
            in,
            {out_rows.begin(), out_rows.end()},
            {in_rows.begin(), in_rows.end()}};
  const auto fits = [&](const Tensor& x, const std::vector<int64_t>& rows) {
    return x.dim() > 0 && rows.size() == static_cast<size_t>(size()) &&
           std::all_of(rows.begin(), rows.end(), [](int64_t r) { return r >= 0; }) &&
           std::accumulate(rows.begin(), rows.end(), int64_t{0}) == x.size(0);
  };
  check_tensors(name(), call.record, out, in, 0, 0);
  if (!fits(out, call.out_rows) || !fits(in, call.in_rows) || out.sizes().slice(1) != in.sizes().slice(1)) {
    fail<Error>("bug: all_to_all of group {}: row counts do not add up to the tensors' rows ({} in, {} out)", name(),
                in.dim() > 0 ? in.size(0) : 0, out.dim() > 0 ? out.size(0) : 0);
  }
  call.record.bytes = static_cast<int64_t>(in.element_size());
  for (int64_t dim : in.sizes().slice(1)) call.record.bytes *= dim;
  return start(std::move(call), [](c10d::Backend& backend, const Call& c) {
    Tensor to = c.out, from = c.in;
    std::vector<int64_t> out_counts = c.out_rows, in_counts = c.in_rows;
    return backend.alltoall_base(to, from, out_counts, in_counts, {});
  });
}

Pending Communicator::broadcast(const Tensor& x, int root) {
  ATHANOR_ASSERT(root >= 0 && root < size());
  Call call{record_of(Collective::kBroadcast, x, root), x, x};
  check_tensors(name(), call.record, x, x, 1, 1);
  return start(std::move(call), [](c10d::Backend& backend, const Call& c) {
    c10d::BroadcastOptions options;
    options.rootRank = c.record.root;
    std::vector<Tensor> tensors{c.out};
    return backend.broadcast(tensors, options);
  });
}

Pending Communicator::send(const Tensor& x, int to) {
  return start_pair({record_of(Collective::kSend, x, to), x, x}, rank_, to, [](c10d::Backend& backend, const Call& c) {
    std::vector<Tensor> tensors{c.in};
    return backend.send(tensors, c.record.root, 0);
  });
}

Pending Communicator::receive(const Tensor& x, int from) {
  return start_pair({record_of(Collective::kReceive, x, from), x, x}, from, rank_,
                    [](c10d::Backend& backend, const Call& c) {
                      std::vector<Tensor> tensors{c.out};
                      return backend.recv(tensors, c.record.root, 0);
                    });
}

Pending Communicator::start_pair(Call call, int from, int to, Run run) {
  check_tensors(name(), call.record, call.out, call.in, 1, 1);
  if (std::min(from, to) < 0 || std::max(from, to) >= size() || from == to) {
    fail<Error>("bug: {} of group {} from rank {} to {}, which have to be two of its {}",
                collective_name(call.record.collective), name(), from, to, size());
  }
  return start(std::move(call), run, to > from ? Lane::kUp : Lane::kDown);
}

void Communicator::barrier() {
  ATHANOR_ASSERT(!host_);
  start({}, [](c10d::Backend& backend, const Call&) { return backend.barrier({}); }).wait();
}

}  // namespace athanor::comm

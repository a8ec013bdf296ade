#include "comm/host_backend.h"

#include <bit>
#include <cstring>

#include "base/error.h"
#include "wire/index_tree.h"
#include "wire/phases.h"

namespace athanor::comm {

namespace {

Element element_of(const at::Tensor& x) {
  switch (x.scalar_type()) {
    case at::kBFloat16: return Element::kBf16;
    case at::kHalf: return Element::kF16;
    case at::kFloat: return Element::kF32;
    case at::kDouble: return Element::kF64;
    case at::kLong: return Element::kI64;
    default:
      fail<CommError>("sums of {} between ranks are not supported; convert it first", c10::toString(x.scalar_type()));
  }
}

struct ReductionRule {
  Combine combine = Combine::kSum;
  Scale scale;
};

ReductionRule rule_of(const c10d::ReduceOp& op, const at::Tensor& x, int size) {
  switch (static_cast<c10d::ReduceOp::RedOpType>(op)) {
    case c10d::ReduceOp::SUM: return {};
    case c10d::ReduceOp::MAX: return {Combine::kMax, {}};
    case c10d::ReduceOp::AVG:
      if (x.scalar_type() == at::kLong)
        fail<CommError>("a mean of integers between ranks is not supported; sum them and divide");
      return {Combine::kSum, mean_scale(size)};
    default: fail<CommError>("ranks can be summed, averaged or have their maximum taken, nothing else");
  }
}

char* bytes_of(const at::Tensor& x) {
  ATHANOR_ASSERT(x.is_contiguous() && x.is_cpu());
  return static_cast<char*>(x.data_ptr());
}

std::vector<int64_t> equal_parts(int64_t each, int size) {
  std::vector<int64_t> begins;
  for (int i = 0; i <= size; ++i) begins.push_back(each * i);
  return begins;
}

std::vector<int64_t> rows_to_begins(const std::vector<int64_t>& rows, int64_t row_bytes) {
  std::vector<int64_t> begins{0};
  for (int64_t count : rows) begins.push_back(begins.back() + count * row_bytes);
  return begins;
}

/// Sends part p of `in` to rank p and receives part p of `out` from rank p; `begins` is in bytes. The rank's own part
/// is copied unless it is in place already.
std::unique_ptr<Phase> exchange_parts(int me, char* in, const std::vector<int64_t>& in_begins, char* out,
                                      const std::vector<int64_t>& out_begins) {
  const int size = static_cast<int>(in_begins.size()) - 1;
  const auto part = [](int peer, char* data, const std::vector<int64_t>& begins) {
    const auto p = static_cast<size_t>(peer);
    return Piece{peer, data + begins[p], begins[p + 1] - begins[p]};
  };
  std::vector<Piece> sends, receives;
  for (int distance = 1; distance < size; ++distance) {
    sends.push_back(part((me + distance) % size, in, in_begins));
    receives.push_back(part((me - distance + size) % size, out, out_begins));
  }
  const Piece from = part(me, in, in_begins), to = part(me, out, out_begins);
  return exchange(std::move(sends), std::move(receives), [from, to] {
    if (from.data != to.data && from.bytes > 0) std::memcpy(to.data, from.data, static_cast<size_t>(from.bytes));
  });
}

/// Sends each member's part of `x` to all others; `begins` is in bytes.
std::unique_ptr<Phase> gather_parts(int me, char* own, char* out, const std::vector<int64_t>& begins) {
  const int size = static_cast<int>(begins.size()) - 1;
  const auto begin = [&](int p) { return begins[static_cast<size_t>(p)]; };
  const int64_t bytes = begin(me + 1) - begin(me);
  std::vector<Piece> sends, receives;
  for (int distance = 1; distance < size; ++distance) {
    const int from = (me - distance + size) % size;
    sends.push_back({(me + distance) % size, own, bytes});
    receives.push_back({from, out + begin(from), begin(from + 1) - begin(from)});
  }
  char* to = out + begin(me);
  return exchange(std::move(sends), std::move(receives), [own, to, bytes] {
    if (own != to && bytes > 0) std::memcpy(to, own, static_cast<size_t>(bytes));
  });
}

/// Returns where the parts of a tensor that is divided among all members begin, in units of `unit`.
std::vector<int64_t> cut_parts(int64_t count, int size, int64_t unit) {
  std::vector<int64_t> begins;
  for (int i = 0; i <= size; ++i) begins.push_back(part_begin(count, size, i) * unit);
  return begins;
}

}  // namespace

bool HostWork::wait(std::chrono::milliseconds timeout) {
  return pump_->wait(*operation_, timeout == kNoTimeout ? std::chrono::hours(24 * 365) : timeout, late_);
}

HostBackend::HostBackend(std::shared_ptr<MessagePump> pump, std::vector<int> ranks, int index, int64_t group_id,
                         const std::string& name, NodeShape shape)
    : Backend(index, static_cast<int>(ranks.size())), pump_(std::move(pump)),
      members_(std::make_shared<Members>(name, std::move(ranks), index, group_id)), shape_(shape) {
  ATHANOR_ASSERT(!shape.two_level() || shape.per_node * shape.nodes == getSize());
  ATHANOR_ASSERT(getSize() > 1 && index >= 0 && index < getSize() && group_id >= 0);
  const int max_tag = pump_->wire().max_tag();
  if (group_id >= Members::num_groups(max_tag)) {
    fail<CommError>("too many groups: group {} is number {}, but this MPI has tags up to {}, which is enough for {}",
                    name, group_id + 1, max_tag, Members::num_groups(max_tag));
  }
  pump_->enroll(members_);
}

std::vector<int64_t> HostBackend::bytes_sent() const {
  return {members_->bytes_sent.get(), members_->bytes_sent.get() + getSize()};
}

HostBackend::Work HostBackend::start(Operation::Phases phases, std::vector<at::Tensor> held, Kind kind, int peer) {
  return c10::make_intrusive<HostWork>(pump_, pump_->start(members_, kind, peer, std::move(phases),
                                                           std::make_shared<std::vector<at::Tensor>>(std::move(held))));
}

HostBackend::Work HostBackend::allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) {
  const at::Tensor& x = tensors.at(0);
  const Element element = element_of(x);
  const ReductionRule rule = rule_of(options.reduceOp, x, getSize());
  char* data = bytes_of(x);
  const int64_t count = x.numel(), bytes = static_cast<int64_t>(x.nbytes());
  if (count == 0) return start({}, {});
  if (bytes <= kSmallAllReduceBytes) {
    return start({[=] { return sum_to_first(element, rule.combine, rule.scale, data, count); },
                  [=] { return broadcast_along_tree(data, bytes, 0); }},
                 {x});
  }
  const int me = getRank(), size = getSize();
  const int64_t width = element_bytes(element);
  char* own = data + part_begin(count, size, me) * width;
  const auto spec = [=] { return SumSpec{element, rule.combine, rule.scale, data, cut_parts(count, size, 1), own}; };
  if (!shape_.two_level()) {
    return start({[=] { return sum_parts(spec(), me); },
                  [=] { return gather_parts(me, own, data, cut_parts(count, size, width)); }},
                 {x});
  }
  auto phases = sum_in_two_levels(shape_, spec, me);
  for (auto& phase : gather_in_two_levels(
           shape_, [=] { return cut_parts(count, size, width); }, me, own, data))
    phases.push_back(std::move(phase));
  return start(std::move(phases), {x});
}

HostBackend::Work HostBackend::_reduce_scatter_base(at::Tensor& out, at::Tensor& in,
                                                    const c10d::ReduceScatterOptions& options) {
  ATHANOR_ASSERT(in.numel() == out.numel() * getSize() && in.scalar_type() == out.scalar_type());
  const ReductionRule rule = rule_of(options.reduceOp, in, getSize());
  const auto spec = [element = element_of(in), rule, from = bytes_of(in), to = bytes_of(out), each = out.numel(),
                     size = getSize()] {
    return SumSpec{element, rule.combine, rule.scale, from, equal_parts(each, size), to};
  };
  if (shape_.two_level()) return start(sum_in_two_levels(shape_, spec, getRank()), {out, in});
  return start({[spec, me = getRank()] { return sum_parts(spec(), me); }}, {out, in});
}

HostBackend::Work HostBackend::_allgather_base(at::Tensor& out, at::Tensor& in, const c10d::AllgatherOptions&) {
  ATHANOR_ASSERT(out.nbytes() == in.nbytes() * static_cast<size_t>(getSize()));
  if (const auto bytes = static_cast<int64_t>(out.nbytes()); bytes > 0 && gathers_along_tree(bytes, getSize())) {
    return start({[own = bytes_of(in), each = static_cast<int64_t>(in.nbytes()), all = bytes_of(out)] {
                    return gather_to_first(own, each, all);
                  },
                  [all = bytes_of(out), bytes] { return broadcast_along_tree(all, bytes, 0); }},
                 {out, in});
  }
  if (shape_.two_level()) {
    const auto begins = [bytes = static_cast<int64_t>(in.nbytes()), size = getSize()] {
      return equal_parts(bytes, size);
    };
    return start(gather_in_two_levels(shape_, begins, getRank(), bytes_of(in), bytes_of(out)), {out, in});
  }
  return start({[me = getRank(), from = bytes_of(in), to = bytes_of(out), each = static_cast<int64_t>(in.nbytes()),
                 size = getSize()] { return gather_parts(me, from, to, equal_parts(each, size)); }},
               {out, in});
}

HostBackend::Work HostBackend::alltoall_base(at::Tensor& out, at::Tensor& in, std::vector<int64_t>& out_rows,
                                             std::vector<int64_t>& in_rows, const c10d::AllToAllOptions&) {
  const auto begins = [&](const at::Tensor& x, const std::vector<int64_t>& rows) {
    if (rows.empty()) return equal_parts(static_cast<int64_t>(x.nbytes()) / getSize(), getSize());
    const int64_t total = x.size(0);
    return rows_to_begins(rows, total == 0 ? 0 : static_cast<int64_t>(x.nbytes()) / total);
  };
  return start({[me = getRank(), from = bytes_of(in), to = bytes_of(out), sent = begins(in, in_rows),
                 received = begins(out, out_rows)] { return exchange_parts(me, from, sent, to, received); }},
               {out, in});
}

HostBackend::Work HostBackend::broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) {
  const at::Tensor& x = tensors.at(0);
  return start({[data = bytes_of(x), bytes = static_cast<int64_t>(x.nbytes()),
                 root = static_cast<int>(options.rootRank)] { return broadcast_along_tree(data, bytes, root); }},
               {x});
}

HostBackend::Work HostBackend::send(std::vector<at::Tensor>& tensors, int to, int /*tag*/) {
  const at::Tensor& x = tensors.at(0);
  const Piece piece{to, bytes_of(x), static_cast<int64_t>(x.nbytes())};
  return start({[piece] { return exchange({piece}, {}, nullptr); }}, {x}, Kind::kSend, to);
}

HostBackend::Work HostBackend::recv(std::vector<at::Tensor>& tensors, int from, int /*tag*/) {
  const at::Tensor& x = tensors.at(0);
  const Piece piece{from, bytes_of(x), static_cast<int64_t>(x.nbytes())};
  return start({[piece] { return exchange({}, {piece}, nullptr); }}, {x}, Kind::kReceive, from);
}

HostBackend::Work HostBackend::barrier(const c10d::BarrierOptions&) {
  return start({[] { return dissemination_barrier(); }}, {});
}

}  // namespace athanor::comm

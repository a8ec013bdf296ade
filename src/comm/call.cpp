#include "comm/call.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "base/error.h"
#include "wire/index_tree.h"

namespace athanor::comm {

std::string describe(const CallRecord& record) {
  std::string text = collective_name(record.collective);
  if (record.collective == Collective::kBarrier) return text;
  const char* type = c10::toString(static_cast<at::ScalarType>(record.type));
  if (record.collective == Collective::kUnevenAllToAll) {
    text += fmt::format(" of rows of {} bytes ({})", record.bytes, type);
  } else {
    text += fmt::format(" of {} bytes ({})", record.bytes, type);
  }
  constexpr const char* kReductions[] = {"sum", "mean", "max"};
  if (record.reduction >= 0 && record.reduction < 3) text += fmt::format(", {}", kReductions[record.reduction]);
  if (record.root >= 0) text += fmt::format(", rank {} of the group", record.root);
  return text;
}

namespace {

// Adds what a sum and a gather in two levels send (phases.h). `part_bytes(r)` is the size of part r.
template <class PartBytes>
void add_sum_in_two_levels(std::vector<int64_t>& to, const NodeShape& shape, int rank, double wide_share,
                           PartBytes part_bytes) {
  const int node = rank / shape.per_node, place = rank % shape.per_node;
  const auto blocks = std::ssize(tree_blocks(node * shape.per_node, (node + 1) * shape.per_node));
  for (int n = 0; n < shape.nodes; ++n) {
    for (int i = 0; i < shape.per_node; ++i) {
      const int part = n * shape.per_node + i;
      if (i != place) to[static_cast<size_t>(node * shape.per_node + i)] += part_bytes(part);
      if (i == place && n != node)
        to[static_cast<size_t>(part)] += std::llround(wide_share * static_cast<double>(blocks * part_bytes(part)));
    }
  }
}

template <class PartBytes>
void add_gather_in_two_levels(std::vector<int64_t>& to, const NodeShape& shape, int rank, PartBytes part_bytes) {
  const int node = rank / shape.per_node, place = rank % shape.per_node;
  for (int n = 0; n < shape.nodes; ++n) {
    if (n != node) to[static_cast<size_t>(n * shape.per_node + place)] += part_bytes(rank);
    for (int i = 0; i < shape.per_node; ++i)
      if (i != place) to[static_cast<size_t>(node * shape.per_node + i)] += part_bytes(n * shape.per_node + place);
  }
}

std::vector<int64_t> bytes_of_all_reduce(int64_t bytes, int64_t element_bytes, int64_t wide_bytes, int rank, int size,
                                         const NodeShape& shape) {
  std::vector<int64_t> to(static_cast<size_t>(size));
  const int64_t count = element_bytes == 0 ? 0 : bytes / element_bytes;
  if (bytes <= kSmallAllReduceBytes) {  // up the tree in the wide type, down in the narrow one
    if (rank > 0) to[static_cast<size_t>(tree_parent(rank))] += count * wide_bytes;
    for (int child : tree_children(rank, size)) to[static_cast<size_t>(child)] += bytes;
    return to;
  }
  const auto part_bytes = [&](int r) {
    return (part_begin(count, size, r + 1) - part_begin(count, size, r)) * element_bytes;
  };
  if (shape.two_level()) {
    add_sum_in_two_levels(to, shape, rank, static_cast<double>(wide_bytes) / static_cast<double>(element_bytes),
                          part_bytes);
    add_gather_in_two_levels(to, shape, rank, part_bytes);
    return to;
  }
  for (int r = 0; r < size; ++r) {
    if (r != rank) to[static_cast<size_t>(r)] = part_bytes(r) + part_bytes(rank);
  }
  return to;
}

}  // namespace

std::vector<int64_t> bytes_to_each(const CallRecord& record, int64_t element_bytes, int64_t wide_bytes,
                                   std::span<const int64_t> in_rows, int rank, int size, const NodeShape& shape) {
  std::vector<int64_t> to(static_cast<size_t>(size));
  if (size == 1) return to;
  const auto part_bytes = [&](int) { return record.bytes / size; };
  switch (record.collective) {
    case Collective::kAllReduce: return bytes_of_all_reduce(record.bytes, element_bytes, wide_bytes, rank, size, shape);
    case Collective::kReduceScatter:
      if (shape.two_level()) {
        add_sum_in_two_levels(to, shape, rank, static_cast<double>(wide_bytes) / static_cast<double>(element_bytes),
                              part_bytes);
        return to;
      }
      to.assign(static_cast<size_t>(size), record.bytes / size);
      break;
    case Collective::kAllGather:
      if (gathers_along_tree(record.bytes, size)) {
        if (rank > 0) to[static_cast<size_t>(tree_parent(rank))] += (tree_end(rank, size) - rank) * part_bytes(rank);
        for (const int child : tree_children(rank, size)) to[static_cast<size_t>(child)] += record.bytes;
        return to;
      }
      if (shape.two_level()) {
        add_gather_in_two_levels(to, shape, rank, part_bytes);
        return to;
      }
      to.assign(static_cast<size_t>(size), record.bytes / size);
      break;
    case Collective::kAllToAll: to.assign(static_cast<size_t>(size), record.bytes / size); break;
    case Collective::kUnevenAllToAll:
      for (size_t p = 0; p < to.size(); ++p) to[p] = in_rows[p] * record.bytes;
      break;
    case Collective::kBroadcast:
      for (int child : tree_children((rank - record.root + size) % size, size)) {
        to[static_cast<size_t>((child + record.root) % size)] = record.bytes;
      }
      break;
    case Collective::kBarrier:
      for (int step = 1; step < size; step *= 2) to[static_cast<size_t>((rank + step) % size)] += 1;
      break;
    case Collective::kSend: to[static_cast<size_t>(record.root)] = record.bytes; break;
    case Collective::kReceive: break;
  }
  to[static_cast<size_t>(rank)] = 0;
  return to;
}

// ---- Check mode
// ------------------------------------------------------------------------------------------------------

namespace {

constexpr size_t kRecordWords = 6;

CallRecord unpacked(std::span<const int64_t> words) {
  return {words[0], static_cast<Collective>(words[1]), static_cast<int32_t>(words[2]),
          words[3], static_cast<int32_t>(words[4]),    static_cast<int32_t>(words[5])};
}

constexpr size_t kRowSums = 6;
using RowSums = std::array<uint64_t, kRowSums>;

/// Returns the record of `rows` sent from one rank to another: their number, its products with both ranks and with
/// their squares, and a product with a hash. The former find a wrong rank, as errors are found in a code; the hash
/// finds every other mistake.
RowSums row_sums(int64_t rows, int from, int to) {
  const auto count = static_cast<uint64_t>(rows), f = static_cast<uint64_t>(from), t = static_cast<uint64_t>(to);
  uint64_t hash = (f << 32 | t) * 0x9E3779B97F4A7C15u;
  hash = (hash ^ (hash >> 31)) * 0xBF58476D1CE4E5B9u;
  return {count, count * f, count * f * f, count * t, count * t * t, count * (hash ^ (hash >> 29))};
}

/// Returns the one rank that a whole difference belongs to, from its products with the rank and the rank's square; −1
/// if there is none.
int number_of_all(uint64_t difference, uint64_t times, uint64_t times_square, int size) {
  if (difference == 0) return -1;
  const int64_t number = static_cast<int64_t>(times) / static_cast<int64_t>(difference);
  const auto n = static_cast<uint64_t>(number);
  return number >= 0 && number < size && n * difference == times && n * n * difference == times_square
             ? static_cast<int>(number)
             : -1;
}

std::string rows_disagree(const RowSums& sums, const CallRecord& record, int size,
                          const std::vector<std::string>& who) {
  const auto name = [&](int rank) { return who[static_cast<size_t>(rank)]; };
  const int from = number_of_all(sums[0], sums[1], sums[2], size), to = number_of_all(sums[0], sums[3], sums[4], size);
  const auto difference = static_cast<int64_t>(sums[0]);
  const std::string call = describe(record);
  const std::string rows = fmt::format("{} rows {}", std::abs(difference), difference > 0 ? "more" : "fewer");
  if (from >= 0 && to >= 0) {
    return fmt::format("{} calls {} with {} for {} than that one expects", name(from), call, rows, name(to));
  }
  if (from >= 0) return fmt::format("{} calls {} with {} than the others expect", name(from), call, rows);
  if (to >= 0) return fmt::format("the others call {} with {} for {} than that one expects", call, rows, name(to));
  return fmt::format("{} is called with other rows than several ranks expect", call);
}

}  // namespace

std::vector<int64_t> packed(const CallRecord& record, std::span<const int64_t> out_rows,
                            std::span<const int64_t> in_rows, int rank) {
  RowSums sums{};
  for (size_t p = 0; p < in_rows.size(); ++p) {
    const RowSums sent = row_sums(in_rows[p], rank, static_cast<int>(p));
    const RowSums expected = row_sums(out_rows[p], static_cast<int>(p), rank);
    for (size_t i = 0; i < kRowSums; ++i) sums[i] += sent[i] - expected[i];
  }
  std::vector<int64_t> words = {
      record.number, static_cast<int64_t>(record.collective), record.type, record.bytes, record.root, record.reduction};
  for (const uint64_t sum : sums) words.push_back(static_cast<int64_t>(sum));
  return words;
}

std::string disagreement(std::span<const int64_t> all, int size, const std::vector<std::string>& who) {
  const size_t length = all.size() / static_cast<size_t>(size);
  const auto of = [&](int rank) { return all.subspan(static_cast<size_t>(rank) * length, length); };
  const auto first = of(0).first(kRecordWords);
  RowSums sums{};
  for (int r = 0; r < size; ++r) {
    const auto other = of(r).first(kRecordWords);
    if (!std::equal(first.begin(), first.end(), other.begin())) {
      return fmt::format("{} calls {} (its number {}), but {} calls {} (its number {})", who[0],
                         describe(unpacked(first)), first[0], who[static_cast<size_t>(r)], describe(unpacked(other)),
                         other[0]);
    }
    for (size_t i = 0; i < kRowSums; ++i) sums[i] += static_cast<uint64_t>(of(r)[kRecordWords + i]);
  }
  return sums == RowSums{} ? "" : rows_disagree(sums, unpacked(first), size, who);
}

DeviceCall::DeviceCall(const CallRecord& record, c10::intrusive_ptr<c10d::Work> work, c10::Stream watch)
    : record_(record), work_(std::move(work)), watch_(watch) {}

DeviceCall::~DeviceCall() = default;

void DeviceCall::let_go() {
  if (!work_) return;
  const c10::StreamGuard on_watch(watch_);
  work_->wait();
  end_.emplace(watch_.device_type());
  end_->record(watch_);
  work_.reset();
}

bool DeviceCall::is_complete() const { return work_ ? work_->isCompleted() : end_->query(); }

std::exception_ptr DeviceCall::exception() const { return work_ ? work_->exception() : nullptr; }

// A device is asked seldom: each question costs about as much as the call.
std::shared_ptr<DeviceCall> DeviceCalls::add(const CallRecord& record, const c10::intrusive_ptr<c10d::Work>& work,
                                             c10::Device device) {
  constexpr size_t kBetweenLooks = 64;
  if (calls_.size() >= look_at_) {
    drop_complete();
    look_at_ = calls_.size() + kBetweenLooks;
  }
  if (!watch_) watch_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, true);
  calls_.push_back(std::make_shared<DeviceCall>(record, work, *watch_));
  return calls_.back();
}

// They complete in their order.
void DeviceCalls::drop_complete() {
  const auto is_incomplete = [](const auto& call) { return !call->is_complete(); };
  calls_.erase(calls_.begin(), std::ranges::find_if(calls_, is_incomplete));
}

const DeviceCall* DeviceCalls::oldest_incomplete() {
  drop_complete();
  return calls_.empty() ? nullptr : calls_.front().get();
}

const DeviceCall* DeviceCalls::oldest_failed() const {
  const auto failed = std::ranges::find_if(calls_, [](const auto& call) { return call->exception() != nullptr; });
  return failed == calls_.end() ? nullptr : failed->get();
}

}  // namespace athanor::comm

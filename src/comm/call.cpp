#include "comm/call.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "comm/index_tree.h"

namespace athanor::comm {

const char* name_of(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce: return "all_reduce";
    case Collective::kReduceScatter: return "reduce_scatter";
    case Collective::kAllGather: return "all_gather";
    case Collective::kAllToAll:
    case Collective::kUnevenAllToAll: return "all_to_all";
    case Collective::kBroadcast: return "broadcast";
    case Collective::kBarrier: return "barrier";
    case Collective::kSend: return "send";
    case Collective::kReceive: return "receive";
  }
  return "?";
}

std::string describe(const CallRecord& record) {
  std::string text = name_of(record.collective);
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

std::vector<int64_t> bytes_of_all_reduce(int64_t bytes, int64_t element_bytes, int64_t wide_bytes, int rank, int size) {
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
  for (int r = 0; r < size; ++r) {
    if (r != rank) to[static_cast<size_t>(r)] = part_bytes(r) + part_bytes(rank);
  }
  return to;
}

}  // namespace

std::vector<int64_t> bytes_to_each(const CallRecord& record, int64_t element_bytes, int64_t wide_bytes,
                                   std::span<const int64_t> in_rows, int rank, int size) {
  std::vector<int64_t> to(static_cast<size_t>(size));
  if (size == 1) return to;
  switch (record.collective) {
    case Collective::kAllReduce: return bytes_of_all_reduce(record.bytes, element_bytes, wide_bytes, rank, size);
    case Collective::kReduceScatter:
    case Collective::kAllGather:
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

constexpr int64_t kRecordWords = 6;

CallRecord unpacked(std::span<const int64_t> words) {
  return {words[0], static_cast<Collective>(words[1]), static_cast<int32_t>(words[2]),
          words[3], static_cast<int32_t>(words[4]),    static_cast<int32_t>(words[5])};
}

}  // namespace

std::vector<int64_t> packed(const CallRecord& record, std::span<const int64_t> out_rows,
                            std::span<const int64_t> in_rows, int size) {
  std::vector<int64_t> words = {
      record.number, static_cast<int64_t>(record.collective), record.type, record.bytes, record.root, record.reduction};
  for (std::span<const int64_t> rows : {out_rows, in_rows}) {
    words.insert(words.end(), rows.begin(), rows.end());
    words.resize(words.size() + static_cast<size_t>(size) - rows.size());
  }
  return words;
}

std::string disagreement(std::span<const int64_t> all, int size, const std::vector<std::string>& who) {
  const size_t each = all.size() / static_cast<size_t>(size);
  const auto of = [&](int rank) { return all.subspan(static_cast<size_t>(rank) * each, each); };
  const auto first = of(0).first(kRecordWords);
  for (int r = 1; r < size; ++r) {
    const auto other = of(r).first(kRecordWords);
    if (std::equal(first.begin(), first.end(), other.begin())) continue;
    return fmt::format("{} calls {} (its number {}), but {} calls {} (its number {})", who[0],
                       describe(unpacked(first)), first[0], who[static_cast<size_t>(r)], describe(unpacked(other)),
                       other[0]);
  }
  for (int from = 0; from < size; ++from) {
    for (int to = 0; to < size; ++to) {
      const int64_t sent = of(from)[static_cast<size_t>(kRecordWords + size + to)];
      const int64_t expected = of(to)[static_cast<size_t>(kRecordWords + from)];
      if (sent == expected) continue;
      return fmt::format("{} calls {} with {} rows for {}, which calls it with {} rows from there",
                         who[static_cast<size_t>(from)], describe(unpacked(first)), sent, who[static_cast<size_t>(to)],
                         expected);
    }
  }
  return "";
}

}  // namespace athanor::comm

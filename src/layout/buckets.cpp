#include "layout/buckets.h"

#include <algorithm>
#include <tuple>

#include "base/error.h"

namespace athanor::inline layout {
namespace {

constexpr int64_t kAlignment = 64;  // elements: 128 bytes of bf16, whole cache lines for every type

int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

int64_t product(const std::vector<int64_t>& extent) {
  int64_t result = 1;
  for (const int64_t e : extent) result *= e;
  return result;
}

int64_t parts_of(const Sharding& sharding, Replication replication) {
  const auto found = sharding.parts.find(replication);
  return found == sharding.parts.end() ? 1 : found->second;
}

}  // namespace

FlatRange intersect(FlatRange a, FlatRange b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

FlatRange part_of(FlatRange range, int64_t parts, int64_t index) {
  ATHANOR_ASSERT(range.size() % parts == 0 && index >= 0 && index < parts);
  const int64_t size = range.size() / parts;
  return {range.begin + index * size, range.begin + (index + 1) * size};
}

void for_each_run(const BucketEntry& entry, int64_t first, int64_t count,
                  const std::function<void(int64_t global, int64_t at, int64_t count)>& visit) {
  const auto& [shape, offset, extent] = std::tie(entry.global_shape, entry.offset, entry.extent);
  // Dims from `inner` on are held whole, except the first of them, of which a run is a slice.
  size_t inner = shape.size();
  int64_t run = 1, row = 1;  // elements of a run here, and of the whole tensor from one run's begin to the next
  while (inner > 0 && (inner == shape.size() || run == row)) {
    --inner;
    run *= extent[inner];
    row *= shape[inner];
  }
  const int64_t in_row = inner < shape.size() ? offset[inner] * (row / shape[inner]) : 0;
  for (int64_t at = 0; at < count;) {
    const int64_t element = first + at, in_run = element % run;
    int64_t left = element / run, global = 0, stride = row;
    for (size_t d = inner; d-- > 0;) {
      global += (offset[d] + left % extent[d]) * stride;
      left /= extent[d];
      stride *= shape[d];
    }
    const int64_t length = std::min(run - in_run, count - at);
    visit(global + in_row + in_run, at, length);
    at += length;
  }
}

std::vector<Bucket> lay_out_buckets(std::vector<BucketEntry>& entries, const Sharding& sharding) {
  std::vector<Bucket> buckets;
  int64_t at = 0;
  const auto close = [&] {
    if (buckets.empty()) return;
    FlatRange& range = buckets.back().range;
    range.end = range.begin + round_up(at - range.begin, kAlignment * parts_of(sharding, buckets.back().replication));
    at = range.end;
  };
  for (BucketEntry& entry : entries) {
    const bool goes_on = !buckets.empty() && buckets.back().replication == entry.replication &&
                         at - buckets.back().range.begin < sharding.bucket_elements;
    if (!goes_on) {
      close();
      buckets.push_back({entry.replication, {at, at}, entry.forward_index, entry.forward_index});
    }
    entry.flat_begin = at;
    entry.flat_end = at + product(entry.extent);
    at = round_up(entry.flat_end, kAlignment);
    Bucket& bucket = buckets.back();
    bucket.first_forward_index = std::min(bucket.first_forward_index, entry.forward_index);
    bucket.last_forward_index = std::max(bucket.last_forward_index, entry.forward_index);
  }
  close();
  return buckets;
}

std::vector<OwnedRange> find_owned_ranges(const std::vector<Bucket>& buckets, const Sharding& sharding) {
  std::vector<OwnedRange> owned;
  int64_t state = 0;
  for (const Bucket& bucket : buckets) {
    const FlatRange range = sharding.owned ? sharding.owned(bucket) : bucket.range;
    ATHANOR_ASSERT(intersect(range, bucket.range) == range);
    if (range.size() == 0) continue;
    if (!owned.empty() && owned.back().flat.end == range.begin) {
      owned.back().flat.end = range.end;
    } else {
      owned.push_back({range, state});
    }
    state += range.size();
  }
  return owned;
}

}  // namespace athanor::inline layout

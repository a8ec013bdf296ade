#pragma once
// How flat memory is cut: into buckets, which are reduced and gathered in one go, and into what of each bucket a rank
// keeps optimizer state for.

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace athanor {

/// Elements [begin, end) of flat memory.
struct FlatRange {
  int64_t begin = 0, end = 0;

  int64_t size() const { return end - begin; }
  bool operator==(const FlatRange&) const = default;
};

FlatRange intersect(FlatRange a, FlatRange b);
/// Part `index` of `parts` equal ones. The size must divide.
FlatRange part_of(FlatRange range, int64_t parts, int64_t index);

/// One line of the bucket table.
struct BucketEntry {
  std::string name;
  std::string group;  ///< parameters of one group are sharded alike (arch/holding.h)
  std::vector<int64_t> global_shape;
  std::vector<int64_t> offset, extent;   ///< the slice of the global tensor that is held here
  int64_t place = 0;                     ///< in the forward pass: 0 embedding, 1 + l of layer l, then what follows
  int64_t flat_begin = 0, flat_end = 0;  ///< elements in flat memory

  FlatRange range() const { return {flat_begin, flat_end}; }
  int64_t num_elements() const { return flat_end - flat_begin; }
};

/// Calls visit(global, at, count) for elements [first, first + count) of an entry's held slice, row-major, run by run:
/// where a run begins in the whole tensor, where after `first`, and how long it is.
void for_each_run(const BucketEntry& entry, int64_t first, int64_t count,
                  const std::function<void(int64_t global, int64_t at, int64_t count)>& visit);

/// A run of neighbouring parameters of one group.
struct Bucket {
  std::string group;
  FlatRange range;                          ///< padding at the end included
  int64_t first_place = 0, last_place = 0;  ///< of its parameters
};

/// How a rank holds its parameters.
struct Sharding {
  /// A bucket ends when it has this many elements or more.
  int64_t bucket_elements = std::numeric_limits<int64_t>::max();
  /// A group's buckets are padded to a multiple of 64 elements for each of so many ranks; 1 where it is not named.
  std::map<std::string, int64_t> parts;
  /// What of a bucket this rank updates. Null: all.
  std::function<FlatRange(const Bucket&)> owned;
};

/// Lays entries out in order, each begun at a multiple of 64 elements (flat ranges are filled in here).
std::vector<Bucket> lay_out_buckets(std::vector<BucketEntry>& entries, const Sharding& sharding);

/// A range of flat memory whose optimizer state is held here, from element `state_begin` of the state on.
struct OwnedRange {
  FlatRange flat;
  int64_t state_begin = 0;
};

/// In order; neighbours that touch are joined.
std::vector<OwnedRange> find_owned_ranges(const std::vector<Bucket>& buckets, const Sharding& sharding);

}  // namespace athanor

#pragma once
// Divides flat memory into buckets, which are each reduced and gathered in one collective, and finds the part of each
// bucket for which a rank keeps optimizer state.

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "arch/inventory.h"
#include "layout/replication.h"

namespace athanor {

/// Elements [begin, end) of flat memory.
struct FlatRange {
  int64_t begin = 0, end = 0;

  int64_t size() const { return end - begin; }
  bool operator==(const FlatRange&) const = default;
};

FlatRange intersect(FlatRange a, FlatRange b);
/// Returns part `index` of `parts` equal ones. The size must be divisible by `parts`.
FlatRange part_of(FlatRange range, int64_t parts, int64_t index);

/// One line of the bucket table.
struct BucketEntry {
  std::string name;
  Replication replication = {};
  std::vector<int64_t> global_shape;
  std::vector<int64_t> offset, extent;  ///< the slice of the global tensor that is held here
  /// Position in the forward pass: 0 for the embedding, 1 + l for layer l, then the rest.
  int64_t forward_index = 0;
  Role role = Role::kGate;
  int64_t layer = -1;                    ///< −1 if it belongs to no layer
  int64_t flat_begin = 0, flat_end = 0;  ///< elements in flat memory

  FlatRange range() const { return {flat_begin, flat_end}; }
  int64_t num_elements() const { return flat_end - flat_begin; }
};

/// Calls visit(global, at, count) for each contiguous piece of elements [first, first + count) of an entry's held
/// slice, row-major: `global` is the piece's first element in the whole tensor, `at` its distance from `first`, and
/// `count` its length.
void for_each_run(const BucketEntry& entry, int64_t first, int64_t count,
                  const std::function<void(int64_t global, int64_t at, int64_t count)>& visit);

/// Neighbouring parameters of one replication kind.
struct Bucket {
  Replication replication;
  FlatRange range;                                          ///< padding at the end included
  int64_t first_forward_index = 0, last_forward_index = 0;  ///< over its parameters
};

/// The way a rank holds its parameters.
struct Sharding {
  /// A bucket ends when it has this many elements or more.
  int64_t bucket_elements = std::numeric_limits<int64_t>::max();
  /// Number of parts of the buckets of a replication kind: they are padded to a multiple of 64 elements for each part.
  /// 1 for a kind that is not named.
  std::map<Replication, int64_t> parts = {};
  /// Returns the range of a bucket that this rank updates. Null: all of it.
  std::function<FlatRange(const Bucket&)> owned = {};
};

/// Lays entries out in order, each beginning at a multiple of 64 elements (fills in their flat ranges), and returns the
/// buckets.
std::vector<Bucket> lay_out_buckets(std::vector<BucketEntry>& entries, const Sharding& sharding);

/// A range of flat memory whose optimizer state is held here, from element `state_begin` of the state on.
struct OwnedRange {
  FlatRange flat;
  int64_t state_begin = 0;
};

/// Returns the owned ranges in order; adjacent ranges are joined.
std::vector<OwnedRange> find_owned_ranges(const std::vector<Bucket>& buckets, const Sharding& sharding);

}  // namespace athanor

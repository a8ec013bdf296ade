#pragma once
// Divides flat memory into buckets, which are each reduced and gathered in one collective, and finds the part of each
// bucket for which a rank keeps optimizer state. Flat memory has all parameters that a rank holds, one after the other;
// weights and gradients are buffers of this form, and positions in it are counted in elements.

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "arch/parameter.h"
#include "layout/replication.h"

namespace athanor::inline layout {

/// Elements [begin, end) of flat memory.
struct FlatRange {
  int64_t begin = 0, end = 0;

  int64_t size() const { return end - begin; }
  bool operator==(const FlatRange&) const = default;
};

/// Returns the common elements; a range of size 0 if there are none.
FlatRange intersect(FlatRange a, FlatRange b);
/// Returns part `index` (from 0) of `parts` equal ones. The size must be divisible by `parts`.
FlatRange part_of(FlatRange range, int64_t parts, int64_t index);

/// One line of the bucket table: a parameter, or the slice of it that is held.
struct BucketEntry {
  std::string name;
  Replication replication = {};
  std::vector<int64_t> global_shape;
  std::vector<int64_t> offset, extent;  ///< the slice of the global tensor that is held here
  /// Position in the forward pass: 0 for the embedding, 1 + l for layer l, then the rest.
  int64_t forward_index = 0;
  Role role = Role::kGate;
  int64_t layer = -1;                    ///< −1 if it belongs to no layer
  int64_t flat_begin = 0, flat_end = 0;  ///< its elements in flat memory; set by lay_out_buckets

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

/// How a rank's flat memory is divided into buckets, and what it owns of each.
struct Sharding {
  /// A bucket ends after the parameter with which it has this many elements or more.
  int64_t bucket_elements = std::numeric_limits<int64_t>::max();
  /// The number of parts into which buckets of a replication kind are cut; 1 for a kind that is not listed. A bucket is
  /// padded to a multiple of 64 · parts elements.
  std::map<Replication, int64_t> parts = {};
  /// Returns the range of flat memory that this rank owns of a bucket. Null: it owns every bucket whole.
  std::function<FlatRange(const Bucket&)> owned = {};
};

/// Lays entries out in the given order, each from a multiple of 64 elements on, and sets their flat ranges. Returns the
/// buckets in order; together they cover flat memory. A bucket also ends where the replication kind changes.
std::vector<Bucket> lay_out_buckets(std::vector<BucketEntry>& entries, const Sharding& sharding);

/// A range of flat memory that this rank owns. Its optimizer state begins at element `state_begin` of the rank's state,
/// which has the owned elements one after the other.
struct OwnedRange {
  FlatRange flat;
  int64_t state_begin = 0;
};

/// Returns the owned ranges in order; adjacent ranges are joined.
std::vector<OwnedRange> find_owned_ranges(const std::vector<Bucket>& buckets, const Sharding& sharding);

}  // namespace athanor::inline layout

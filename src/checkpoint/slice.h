#pragma once
// A slice of a tensor as checkpoints store it: a flat range inside a rectangular box. The elements of the box are
// numbered row-major from 0, and the range has those from flat_begin to before flat_end. Whole tensors, tensor-parallel
// shards, an expert's rows and an optimizer's flat shard are all slices. Two slices of one tensor, cut along any dims,
// share runs of consecutive elements; this file finds them.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/dtype.h"

namespace athanor::inline checkpoint {

struct Slice {
  Shape global_shape;      // shape of the tensor
  Shape offset, extent;    // the box: its first index and its size in each dim
  int64_t flat_begin = 0;  // the range: numbers of elements of the box, row-major
  int64_t flat_end = 0;    // end of the range, exclusive

  int64_t num_elements() const { return flat_end - flat_begin; }
  bool operator==(const Slice&) const = default;
};

/// Returns the slice of a whole tensor.
Slice whole_slice(Shape global_shape);
/// Returns the slice of a whole box.
Slice box_slice(Shape global_shape, Shape offset, Shape extent);

/// Returns the slice as text: "offset [0, 4], extent [8, 2], elements 3 to 16" (flat_begin and flat_end).
std::string slice_text(const Slice& slice);

/// A reference to a slice, whose shapes must outlive it.
struct SliceRef {
  std::span<const int64_t> global_shape, offset, extent;
  int64_t flat_begin, flat_end;

  SliceRef(std::span<const int64_t> shape, std::span<const int64_t> box_offset, std::span<const int64_t> box_extent,
           int64_t begin, int64_t end)
      : global_shape(shape), offset(box_offset), extent(box_extent), flat_begin(begin), flat_end(end) {}
  SliceRef(const Slice& slice)  // NOLINT(google-explicit-constructor): a slice is one
      : SliceRef(slice.global_shape, slice.offset, slice.extent, slice.flat_begin, slice.flat_end) {}
};

/// Checks a slice. @throws CheckpointError "<where>: ..." unless the box lies in the tensor and the range in the box.
void check_slice(const SliceRef& slice, std::string_view where);

/// Returns the index in the tensor, one number for each dim, of the slice's element `i`, counted from flat_begin.
Shape global_index(const Slice& slice, int64_t i);
/// Returns the same index as a row-major position in the tensor. It grows with `i`.
int64_t global_position(const SliceRef& slice, int64_t i);

/// A run of `count` elements that are consecutive in both slices; positions count from each slice's flat_begin.
struct CommonRun {
  int64_t in_a, in_b, count;
};

/// The elements that slices `a` and `b` of one tensor share, as runs in row-major order. Both slices must have been
/// checked and must outlive this object.
///
/// Inner dims that both boxes hold in full width join into one run; the remaining outer dims form rows. Rows outside
/// either flat range are skipped by bisection, since a row's position grows with its number in both.
class CommonRuns {
 public:
  CommonRuns(const Slice& a, const Slice& b);

  bool empty() const;

  /// Hands out the runs in parts, for a caller that has slice `a` before it block by block. Refers to the runs.
  class Cursor {
   public:
    explicit Cursor(const CommonRuns& runs) : runs_(&runs), row_(runs.first_row()) {}
    /// Returns the next run, cut at element `end` of `a`; none if it begins there or later, or if there is none.
    std::optional<CommonRun> next_before(int64_t end);

   private:
    const CommonRuns* runs_;
    int64_t row_;
    CommonRun rest_{0, 0, 0};
  };

  /// Calls visit(CommonRun) for each run.
  template <class Visit>
  void for_each(Visit visit) const {
    for (int64_t r = first_row(); r < num_rows_; ++r) {
      const auto row = row_at(r);
      if (row.in_a >= a_.flat_end || row.in_b >= b_.flat_end) return;
      if (const auto run = clip(row); run.count > 0) visit(run);
    }
  }

 private:
  struct OuterDim {
    int64_t size, stride_a, stride_b;
  };

  int64_t first_row() const;
  CommonRun row_at(int64_t r) const;    // positions in the boxes, not clipped to the flat ranges
  CommonRun clip(CommonRun row) const;  // positions in the flat ranges; count may be <= 0

  const Slice &a_, &b_;
  std::vector<OuterDim> outer_;
  int64_t num_rows_ = 1, row_length_ = 1, base_a_ = 0, base_b_ = 0;
};

}  // namespace athanor::inline checkpoint

#include "checkpoint/slice.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace athanor::inline checkpoint {

Slice whole_slice(Shape global_shape) {
  Shape offset(global_shape.size(), 0), extent = global_shape;
  return box_slice(std::move(global_shape), std::move(offset), std::move(extent));
}

Slice box_slice(Shape global_shape, Shape offset, Shape extent) {
  Slice slice{std::move(global_shape), std::move(offset), std::move(extent), 0, 0};
  slice.flat_end = num_elements(slice.extent).value_or(0);
  return slice;
}

std::string slice_text(const Slice& slice) {
  return fmt::format("offset {}, extent {}, elements {} to {}", shape_text(slice.offset), shape_text(slice.extent),
                     slice.flat_begin, slice.flat_end);
}

void check_slice(const SliceRef& slice, std::string_view where) {
  const size_t dims = slice.global_shape.size();
  ATHANOR_CHECK_CHECKPOINT(num_elements(slice.global_shape).has_value(), "{}: shape {} is impossible", where,
                           shape_text(slice.global_shape));
  ATHANOR_CHECK_CHECKPOINT(slice.offset.size() == dims && slice.extent.size() == dims,
                           "{}: offset {} and extent {} must have as many dims as shape {}", where,
                           shape_text(slice.offset), shape_text(slice.extent), shape_text(slice.global_shape));
  for (size_t d = 0; d < dims; ++d) {
    const int64_t size = slice.global_shape[d], offset = slice.offset[d], extent = slice.extent[d];
    ATHANOR_CHECK_CHECKPOINT(offset >= 0 && extent >= 0 && extent <= size && offset <= size - extent,
                             "{}: dim {} holds elements {} to {}+{}, but shape {} has {} there", where, d, offset,
                             offset, extent, shape_text(slice.global_shape), size);
  }
  const int64_t box = *num_elements(slice.extent);  // at most the number of elements in the shape
  ATHANOR_CHECK_CHECKPOINT(0 <= slice.flat_begin && slice.flat_begin <= slice.flat_end && slice.flat_end <= box,
                           "{}: elements {} to {} are not a range inside the {} of extent {}", where, slice.flat_begin,
                           slice.flat_end, box, shape_text(slice.extent));
}

Shape global_index(const Slice& slice, int64_t i) {
  Shape index(slice.extent.size(), 0);
  int64_t rest = slice.flat_begin + i;
  for (size_t d = index.size(); d-- > 0;) {
    if (slice.extent[d] == 0) continue;
    index[d] = slice.offset[d] + rest % slice.extent[d];
    rest /= slice.extent[d];
  }
  return index;
}

int64_t global_position(const SliceRef& slice, int64_t i) {
  int64_t rest = slice.flat_begin + i, position = 0, stride = 1;
  for (size_t d = slice.extent.size(); d-- > 0;) {
    const int64_t extent = std::max<int64_t>(1, slice.extent[d]);
    position += (slice.offset[d] + rest % extent) * stride;
    rest /= extent;
    stride *= slice.global_shape[d];
  }
  return position;
}

CommonRuns::CommonRuns(const Slice& a, const Slice& b) : a_(a), b_(b) {
  int64_t stride_a = 1, stride_b = 1;
  bool joined = true;  // both have every dim to the right in the same full width
  for (size_t d = a.extent.size(); d-- > 0;) {
    const int64_t low = std::max(a.offset[d], b.offset[d]);
    const int64_t high = std::min(a.offset[d] + a.extent[d], b.offset[d] + b.extent[d]);
    if (high <= low) {
      num_rows_ = 0;
      return;
    }
    const int64_t size = high - low;
    base_a_ += (low - a.offset[d]) * stride_a;
    base_b_ += (low - b.offset[d]) * stride_b;
    if (joined) {
      row_length_ *= size;
    } else {
      outer_.push_back({size, stride_a, stride_b});
      num_rows_ *= size;
    }
    joined = joined && size == a.extent[d] && size == b.extent[d];
    stride_a *= a.extent[d];
    stride_b *= b.extent[d];
  }
}

CommonRun CommonRuns::row_at(int64_t r) const {
  CommonRun row{base_a_, base_b_, row_length_};
  for (const auto& dim : outer_) {  // the innermost outer dim comes first
    const int64_t index = r % dim.size;
    r /= dim.size;
    row.in_a += index * dim.stride_a;
    row.in_b += index * dim.stride_b;
  }
  return row;
}

CommonRun CommonRuns::clip(CommonRun row) const {
  const int64_t skip = std::max({int64_t{0}, a_.flat_begin - row.in_a, b_.flat_begin - row.in_b});
  const int64_t end = std::min({row.count, a_.flat_end - row.in_a, b_.flat_end - row.in_b});
  return {row.in_a + skip - a_.flat_begin, row.in_b + skip - b_.flat_begin, end - skip};
}

int64_t CommonRuns::first_row() const {
  int64_t low = 0, high = num_rows_;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    const auto row = row_at(middle);
    const bool before = row.in_a + row.count <= a_.flat_begin || row.in_b + row.count <= b_.flat_begin;
    if (before) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

std::optional<CommonRun> CommonRuns::Cursor::next_before(int64_t end) {
  for (; rest_.count <= 0; ++row_) {
    if (row_ >= runs_->num_rows_) return std::nullopt;
    const auto row = runs_->row_at(row_);
    if (row.in_a >= runs_->a_.flat_end || row.in_b >= runs_->b_.flat_end) return std::nullopt;
    rest_ = runs_->clip(row);
  }
  const int64_t count = std::min(rest_.count, end - rest_.in_a);
  if (count <= 0) return std::nullopt;
  const CommonRun run{rest_.in_a, rest_.in_b, count};
  rest_ = {rest_.in_a + count, rest_.in_b + count, rest_.count - count};
  return run;
}

bool CommonRuns::empty() const {
  for (int64_t r = first_row(); r < num_rows_; ++r) {
    const auto row = row_at(r);
    if (row.in_a >= a_.flat_end || row.in_b >= b_.flat_end) return true;
    if (clip(row).count > 0) return false;
  }
  return true;
}

}  // namespace athanor::inline checkpoint

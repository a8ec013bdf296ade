#pragma once
// For this directory's tests: random shapes, random slices, and random ways to cut a whole tensor into slices.

#include <algorithm>
#include <utility>
#include <vector>

#include "base/random.h"
#include "checkpoint/slice.h"

namespace athanor::inline checkpoint {

class RandomSlices {
 public:
  explicit RandomSlices(uint64_t seed) : random_(seed, "slices") {}

  int64_t below(int64_t bound) { return static_cast<int64_t>(random_.below(next_++, static_cast<uint64_t>(bound))); }

  /// Returns a shape of 0 to 4 dims with 0 to 7 elements each; a dim of 0 elements is rare.
  Shape shape() {
    Shape shape(static_cast<size_t>(below(5)));
    for (auto& size : shape) size = below(20) == 0 ? 0 : 1 + below(7);
    return shape;
  }

  /// Returns a random box with a random range in it; either may be empty.
  Slice slice(const Shape& shape) {
    Shape offset, extent;
    for (const int64_t size : shape) {
      offset.push_back(below(3) == 0 ? below(size + 1) : 0);
      extent.push_back(below(3) == 0 ? below(size - offset.back() + 1) : size - offset.back());
    }
    auto slice = box_slice(shape, std::move(offset), std::move(extent));
    if (below(2) == 0) {
      const int64_t a = below(slice.flat_end + 1), b = below(slice.flat_end + 1);
      slice.flat_begin = std::min(a, b);
      slice.flat_end = std::max(a, b);
    }
    return slice;
  }

  /// Returns slices that together hold each element once: boxes cut along random dims, some of them cut again into flat
  /// ranges, in random order, with empty ones among them.
  std::vector<Slice> tiling(const Shape& shape) {
    std::vector<Slice> boxes{whole_slice(shape)}, tiles;
    for (int64_t cuts = shape.empty() ? 0 : below(5); cuts > 0; --cuts) {
      const auto which = static_cast<size_t>(below(static_cast<int64_t>(boxes.size())));
      const auto dim = static_cast<size_t>(below(static_cast<int64_t>(shape.size())));
      const auto box = boxes[which];
      const int64_t at = below(box.extent[dim] + 1);
      auto left = box.extent, right = box.extent, moved = box.offset;
      left[dim] = at;
      right[dim] -= at;
      moved[dim] += at;
      boxes[which] = box_slice(shape, box.offset, left);
      boxes.push_back(box_slice(shape, moved, right));
    }
    for (const auto& box : boxes) {
      std::vector<int64_t> ends{box.flat_end};
      for (int64_t cuts = below(4); cuts > 0; --cuts) ends.push_back(below(box.flat_end + 1));
      std::sort(ends.begin(), ends.end());
      int64_t begin = 0;
      for (const int64_t end : ends) {
        tiles.push_back(box);
        tiles.back().flat_begin = std::exchange(begin, end);
        tiles.back().flat_end = end;
      }
    }
    for (size_t i = tiles.size(); i > 1; --i) std::swap(tiles[i - 1], tiles[static_cast<size_t>(below(int64_t(i)))]);
    return tiles;
  }

 private:
  CounterRandom random_;
  uint64_t next_ = 0;
};

}  // namespace athanor::inline checkpoint

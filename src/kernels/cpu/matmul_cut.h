#pragma once
// The cut of a product into parts for threads, and of a part into passes over k. Neither changes a bit of the result.
//
// A region of k is one sum in the definition of the result (matmul.h). A pass is the part of a region that is packed at
// once. Widened and fp32 operands have twice the bytes, so they are packed in slices of k. The panel of a slice stays
// in the first-level cache while all rows of the part use it; the tiles wait in memory between slices. If a part has
// few rows, a panel is not used often enough for that; then a pass is a whole region, which lets the next strip be
// prefetched (Part::prefetch_of in matmul.cpp).

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/gemm_pack.h"
#include "kernels/matmul.h"

namespace athanor::kernels {

// Blocks of at most 12 rows with sizes as equal as possible, since a block of 1 row would leave the units idle.
struct RowBlocks {
  int64_t begin, end, count = divide_up(end - begin, kTileRows);
  int64_t first(int64_t block) const { return begin + (end - begin) * block / count; }
};

/// The range of one pass: k in [k, k + count) of the factors [first_factor, end_factor).
struct Pass {
  int64_t k, count;
  int first_factor, end_factor;
  bool begins, ends;  ///< first pass of a sum (nothing to add to), last pass of a sum (the result goes to memory)
};

template <class T, class P>
class Cut {
 public:
  explicit Cut(const Product<T>& p)
      : p_(p), region_(std::max<int64_t>(1, p.sum          ? std::min(p.k, kSumChunk)
                                            : p.k > kLongK ? kLongChunk
                                                           : p.k)),
        slices_(kSlices && rows() >= kFewRows && region_ > kLongestSlice ? divide_up(region_, kSlice) : 1),
        slice_(divide_up(region_, slices_)) {}

  int64_t num_passes() const { return divide_up(p_.k, region_) * passes_of_region(); }
  Pass pass(int64_t index) const {
    const int64_t region = index / passes_of_region(), within = index % passes_of_region();
    const int64_t begin = region * region_, count = std::min(region_, p_.k - begin);
    const int64_t first = within % slices_ * slice_;
    Pass pass{begin + first,
              std::clamp<int64_t>(count - first, 0, slice_),
              0,
              p_.num_factors(),
              within == 0,
              within + 1 == passes_of_region()};
    if (slices_ > 1) {
      pass.first_factor = static_cast<int>(within / slices_);
      pass.end_factor = pass.first_factor + 1;
    }
    if (!p_.sum) {
      pass.begins = pass.begins && region == 0;
      pass.ends = pass.ends && begin + count == p_.k;
    }
    return pass;
  }

  /// True if tiles wait in scratch memory between passes.
  bool keeps_tiles() const { return p_.sum ? slices_ > 1 : num_passes() > 1; }

  /// True if A is packed: if its type changes, its k are not contiguous, or the last step would read beyond a row. It
  /// is packed, too, if its rows may evict each other from the cache and there are enough columns to repay the packing.
  bool packs_a() const {
    if (!std::is_same_v<T, P> || p_.first.a.transposed || p_.k % kStep<P> != 0) return true;
    return kSlices && p_.n >= kManyColumns;
  }

  int64_t k_of_pass() const { return slice_; }
  int64_t factors_of_pass() const { return slices_ > 1 ? 1 : p_.num_factors(); }

  /// Number of panels packed at once for each factor: these stay in the second-level cache (1 MiB or more on chips with
  /// AVX-512) together with A's rows.
  int64_t panels_in_strip() const {
    const int64_t bytes = panel_elements<P>(slice_) * static_cast<int64_t>(sizeof(P)) * factors_of_pass();
    return std::clamp<int64_t>(kStripBytes / std::max<int64_t>(bytes, 1), 1, kMostPanels);
  }
  int64_t rows() const { return p_.m == 0 ? 0 : divide_up(p_.m, divide_up(p_.m, kPartRows)); }
  int64_t columns() const { return std::max(panels_in_strip() * kTileColumns, packs_a() ? kPackedColumns : 0); }

  /// True if a panel stays in the first-level cache while rows change; false if rows stay while panels change.
  bool panel_stays() const {
    constexpr int64_t kShortPanelBytes = 32 << 10;
    const bool is_short = panel_elements<P>(slice_) * static_cast<int64_t>(sizeof(P)) <= kShortPanelBytes;
    return slices_ > 1 || (!p_.sum && is_short);  // sums are written along rows of memory
  }

  int64_t a_elements() const {
    return packs_a() ? divide_up(rows(), kTileRows) * kTileRows * steps_of<P>(slice_) * kStep<P> : 0;
  }
  int64_t strip_elements() const { return panels_in_strip() * panel_elements<P>(slice_); }
  int64_t kept_elements() const {
    return keeps_tiles() ? divide_up(rows(), kTileRows) * divide_up(columns(), kTileColumns) * kTileElements : 0;
  }

 private:
  static constexpr bool kSlices = std::is_same_v<P, float>;
  static constexpr int64_t kStripBytes = 512 << 10;
  static constexpr int64_t kMostPanels = 16;
  static constexpr int64_t kSumChunk = 1024;     // k of one sum added to memory: bounds the packed A
  static constexpr int64_t kLongK = 4096;        // above this a panel is too large for the second-level cache;
  static constexpr int64_t kLongChunk = 2048;    // tiles are then kept as fp32 between chunks of k
  static constexpr int64_t kSlice = 192;         // a panel of 24 KiB, and room for two blocks of A
  static constexpr int64_t kLongestSlice = 256;  // up to here one more slice costs more than a longer panel
  static constexpr int64_t kFewRows = 128;
  static constexpr int64_t kManyColumns = 128;
  static constexpr int64_t kPartRows = kSlices ? 720 : 960;        // 60 or 80 blocks of 12
  static constexpr int64_t kPackedColumns = kSlices ? 768 : 1024;  // a packed A is used for at least this many columns

  int64_t passes_of_region() const { return slices_ > 1 ? slices_ * p_.num_factors() : 1; }

  const Product<T>& p_;
  int64_t region_, slices_, slice_;
};

}  // namespace athanor::kernels

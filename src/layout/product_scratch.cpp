#include "layout/product_scratch.h"

#include <algorithm>
#include <cmath>

namespace athanor::inline layout {
namespace {

// The values of kernels/cpu/matmul_cut.h; train/product_scratch_test.cpp compares the two.
constexpr double kStripBytes = 512 << 10, kPanelColumns = 32, kMostPanels = 16, kTileRows = 12, kSumChunk = 1024,
                 kLongK = 4096, kLongChunk = 2048, kSlice = 192, kLongestSlice = 256, kFewRows = 128,
                 kManyColumns = 128, kBlockSlack = 64, kLine = 64;

double padded(double bytes) { return std::ceil((bytes + kBlockSlack) / kLine) * kLine; }

}  // namespace

double product_scratch(const ProductShape& p, const ProductWidths& widths, double threads, double count) {
  if (threads == 0 || p.m < 1 || p.n < 1 || p.k < 1) return 0;
  const bool slices_k = widths.packed == 4;
  const double part_rows = slices_k ? 720 : 960, packed_columns = slices_k ? 768 : 1024;
  const double rows = std::ceil(p.m / std::ceil(p.m / part_rows));
  const double region = p.sum ? std::min(p.k, kSumChunk) : p.k > kLongK ? kLongChunk : p.k;
  const double slices = slices_k && rows >= kFewRows && region > kLongestSlice ? std::ceil(region / kSlice) : 1;
  const double slice = std::ceil(region / slices), factors = slices > 1 ? 1 : p.factors;
  const double passes = std::ceil(p.k / region) * (slices > 1 ? slices * p.factors : 1);
  const bool packs_a = widths.element != widths.packed || p.sum || (slices_k && p.n >= kManyColumns);

  const double blocks = std::ceil(rows / kTileRows), panel = slice * kPanelColumns * widths.packed;
  const double panels = std::clamp(std::floor(kStripBytes / (panel * factors)), 1.0, kMostPanels);
  const double columns = std::max(panels * kPanelColumns, packs_a ? packed_columns : 0);
  const double a = packs_a ? blocks * kTileRows * slice * widths.packed : 0;
  const bool keeps_tiles = p.sum ? slices > 1 : passes > 1;
  const double kept = keeps_tiles ? blocks * std::ceil(columns / kPanelColumns) * kTileRows * kPanelColumns * 4 : 0;
  const double parts = count * std::ceil(p.m / rows) * std::ceil(p.n / columns);
  return std::min(threads, parts) * (factors * (padded(a) + padded(panels * panel)) + padded(kept));
}

}  // namespace athanor::inline layout

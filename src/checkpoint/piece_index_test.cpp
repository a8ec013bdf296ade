#include "checkpoint/piece_index.h"

#include <gtest/gtest.h>

#include <set>

#include "checkpoint/testing/random_slices.h"

namespace athanor::piece_index_test {
namespace {

/// Pieces of one tensor, without files.
struct Pieces {
  Manifest manifest;
  const TensorTable::value_type* tensor;
  const FileTable::value_type* file;

  explicit Pieces(const Shape& shape)
      : tensor(manifest.add_tensor("master/a", shape)), file(&*manifest.files.emplace("a.safetensors", 0).first) {}
  void add(const Slice& slice) { manifest.add_piece(tensor, file, slice, 0, {}); }
  PieceIndex index() const {
    std::vector<const Piece*> pieces;
    for (const Piece& piece : manifest.pieces) pieces.push_back(&piece);
    return PieceIndex(pieces);
  }
};

TEST(PieceIndex, EveryPieceThatSharesAnElementIsVisitedOnce) {
  RandomSlices random(23);
  for (int round = 0; round < 1000; ++round) {
    const Shape shape = random.shape();
    Pieces pieces(shape);
    for (int64_t i = random.below(20); i > 0; --i) pieces.add(random.slice(shape));
    const Slice wanted = random.slice(shape);
    std::multiset<const Piece*> visited;
    pieces.index().for_each_near(wanted, [&](const Piece& piece) { visited.insert(&piece); });
    for (const Piece& piece : pieces.manifest.pieces) {
      ASSERT_LE(visited.count(&piece), 1u);
      const Slice slice = piece.slice();
      const bool shares = !CommonRuns(slice, wanted).empty();
      ASSERT_TRUE(!shares || visited.count(&piece) == 1) << slice_text(slice);
    }
  }
}

TEST(PieceIndex, ASliceOfOneOfTenThousandRanksLooksAtAFewPieces) {
  // 12,288 ranks: four cut the columns, and each of these strips is cut into flat ranges.
  constexpr int64_t kStrips = 4, kRanges = 3072, kRows = 3072, kColumns = 64;
  const Shape shape{kRows, kColumns};
  Pieces pieces(shape);
  const auto range_of = [&](int64_t strip, int64_t range, int64_t ranges) {
    Slice slice = box_slice(shape, {0, strip * kColumns / kStrips}, {kRows, kColumns / kStrips});
    const int64_t all = slice.flat_end;
    slice.flat_begin = all * range / ranges;
    slice.flat_end = all * (range + 1) / ranges;
    return slice;
  };
  for (int64_t strip = 0; strip < kStrips; ++strip) {
    for (int64_t range = 0; range < kRanges; ++range) pieces.add(range_of(strip, range, kRanges));
  }
  const PieceIndex index = pieces.index();
  // As many ranks with another cut read them: each looks at its own rows, in every strip.
  int64_t visits = 0;
  for (int64_t range = 0; range < kStrips * kRanges; ++range) {
    Slice wanted = whole_slice(shape);
    wanted.flat_begin = wanted.num_elements() * range / (kStrips * kRanges);
    wanted.flat_end = whole_slice(shape).flat_end * (range + 1) / (kStrips * kRanges);
    index.for_each_near(wanted, [&](const Piece&) { ++visits; });
  }
  EXPECT_LE(visits, kStrips * kRanges * 2 * kStrips);
}

}  // namespace
}  // namespace athanor::piece_index_test

#pragma once
// The order in which an epoch visits the rows of a source.
//
// `athanor prepare` has permuted the instances of each part, so the first epoch takes the rows as they lie: ranks read
// shards from front to back. Later epochs permute blocks of 1 MiB, and the rows in each block: each block is still read
// from one place.

#include <cstdint>
#include <memory>

#include "dataset/dataset.h"

namespace athanor::inline dataset {

enum class DataOrder {
  kShuffledRows,  ///< each epoch is a permutation of all rows; runs that an older program began keep it
  kBlocks,        ///< the order described above
};

/// The rows that an order covers: `size` rows from `first_row` on in epoch `epoch`; all rows of a source, or those that
/// were added to it during the epoch.
struct Stretch {
  int64_t epoch = 0, first_row = 0, size = 0;
};

/// A bijection from [0, stretch.size) to the rows of the stretch. Not thread-safe; ascending indices are cheapest.
class EpochOrder {
 public:
  virtual ~EpochOrder() = default;
  /// Returns the row that is element `index`.
  virtual int64_t row(int64_t index) = 0;

  /// kShuffledRows: Permutation(size, seed, "data epoch <e>"), with ", added at <first_row>" if that is not 0.
  /// kBlocks, epoch 0: the rows of each part of the folder in order. Of several parts, the instances are mixed in
  /// proportion: after any number of elements, each part has given its share to within half the number of parts.
  /// kBlocks, later epochs: full blocks by Permutation(blocks, seed, "blocks of epoch <e>"), and each block's rows by a
  /// permutation. The rest of the rows, which are fewer than a block, is between two blocks.
  /// @param seed  train.seed.
  static std::unique_ptr<EpochOrder> make(DataOrder order, const Dataset& data, const Stretch& stretch, uint64_t seed);
};

/// The order of kBlocks in epoch 0: parts[p] is the number of rows of part p; they lie one after another.
std::unique_ptr<EpochOrder> make_parts_order(std::vector<int64_t> parts, int64_t first_row);

/// The order of kBlocks in later epochs, with blocks of `block_rows` rows.
std::unique_ptr<EpochOrder> make_blocks_order(const Stretch& stretch, int64_t block_rows, uint64_t seed);

}  // namespace athanor::inline dataset

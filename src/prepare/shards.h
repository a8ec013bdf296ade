#pragma once
// The shards: the files of prepared instances, the rows in each, and the piecewise writing of one.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/hash.h"
#include "dataset/block_checksums.h"

namespace athanor::inline preparation {

/// A shard and its rows. `first_row` counts among all rows that are written, from 0.
struct ShardPlace {
  std::string file;
  int64_t first_row = 0, num_rows = 0;
};

/// The hashes of a finished shard, for the folder's manifest and its file of checksums.
struct FinishedShard {
  std::string hash;               ///< hash of the whole file; empty: the shard is not finished
  std::vector<HashWords> blocks;  ///< hashes of its blocks of rows
};

/// The format of all shards of a folder.
struct ShardForm {
  int64_t seq_len = 0;
  int item_bytes = 2;
  uint64_t shard_bytes = 0;  ///< no shard is larger, unless a single instance is
  int64_t row_bytes() const { return seq_len * item_bytes; }
  int64_t block_rows() const { return rows_per_block(row_bytes()); }
};

/// Divides rows [first_row, first_row + count) among shards "<split>-<first_number>.npy" and so on. All but the last
/// have whole blocks (dataset/block_checksums.h), if a block fits.
std::vector<ShardPlace> place_shards(const std::string& split, int64_t first_row, int64_t count, int64_t first_number,
                                     const ShardForm& form);

/// A shard that is being written. After commit() it exists, complete and on disk; without commit() it does not exist.
class ShardWriter {
 public:
  /// @throws IoError
  ShardWriter(const std::filesystem::path& folder, const ShardPlace& place, const ShardForm& form);
  /// Writes the next rows. @throws IoError
  void write(const std::byte* rows, size_t num_bytes);
  /// Completes the file, to which place.num_rows rows must have been written. @throws IoError
  FinishedShard commit();

 private:
  AtomicFile file_;
  Hasher hasher_;
  BlockHasher blocks_;
};

/// Returns the hashes of the blocks of a finished shard. @throws IoError, DataError
std::vector<HashWords> hash_blocks(const std::filesystem::path& shard, const ShardForm& form);

}  // namespace athanor::inline preparation

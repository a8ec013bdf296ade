#pragma once
// Checksums of the blocks of shards: a rank that reads a few rows can verify them without reading whole shards.
//
// The rows of each shard are cut into blocks of equal numbers of rows, of 1 MiB or a little more; the last block of a
// shard may be smaller. A part of a prepared folder (one call of `athanor prepare`) has one file of checksums, an .npy
// matrix '<u4' [blocks, 4] whose row is HashWords of a block's rows: those of all shards of the part, split by split in
// the order of their names, and shard by shard in the order of their row numbers.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/hash.h"
#include "dataset/manifest.h"
#include "dataset/npy.h"

namespace athanor::inline dataset {

/// Returns the number of rows of `row_bytes` in a block: the least that has 1 MiB.
int64_t rows_per_block(int64_t row_bytes);

/// Returns the number of blocks of `block_rows` rows in a shard of `rows`.
int64_t count_blocks(int64_t rows, int64_t block_rows);

/// Hashes the blocks of a shard whose rows come in pieces of any size.
class BlockHasher {
 public:
  explicit BlockHasher(int64_t block_bytes) : block_bytes_(block_bytes) {}
  void update(const std::byte* data, size_t num_bytes);
  /// Returns the hashes of all blocks, the last of which may be smaller.
  std::vector<HashWords> finish();

 private:
  const int64_t block_bytes_;
  int64_t in_block_ = 0;
  Hasher hasher_;
  std::vector<HashWords> blocks_;
};

/// Returns the bytes of a file of checksums.
std::string checksum_file_bytes(const std::vector<HashWords>& blocks);

/// Where the checksums of a shard's blocks are: from row `first_block` of the file on.
struct ShardBlocks {
  std::string file;  ///< name in the folder
  int64_t first_block = 0, block_rows = 0;
  int64_t file_blocks = 0;  ///< number of rows of the file
};

/// The blocks of a folder.
struct FolderBlocks {
  /// By split, for each file in their order; none for the shards of parts that an older program wrote.
  std::map<std::string, std::vector<std::optional<ShardBlocks>>> shards;
  std::vector<int64_t> of_parts;  ///< for each part the number of rows of its file; 0 without a file
};

/// @throws DataError if a shard has rows of two parts, or two parts name one file; `name` names the manifest.
FolderBlocks find_blocks(const DataManifest& manifest, const std::string& name);

/// Reads block `block` of a shard and compares it with its checksum. The shard and the file of checksums are open.
/// @throws DataError naming the rows of a block that differs; IoError.
std::vector<std::byte> read_block(const NpyMatrix& shard, const NpyMatrix& checksums, const ShardBlocks& blocks,
                                  int64_t block);

}  // namespace athanor::inline dataset

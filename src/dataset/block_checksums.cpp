#include "dataset/block_checksums.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/error.h"
#include "dataset/npy.h"
#include "dataset/verify.h"

namespace athanor::inline dataset {
namespace {

constexpr int64_t kLeastBlockBytes = int64_t{1} << 20;

using FileBlocks = std::vector<std::optional<ShardBlocks>>;  // one for each file of a split

// Adds the files that hold the part's `instances` of a split, from file `next.size()` of the split on.
void add_files_of_part(const SplitEntry& split, int64_t instances, const PartEntry& part, int64_t& num_blocks,
                       FileBlocks& next, const std::string& name) {
  while (instances > 0) {
    const auto& shard = split.files.at(next.size());
    ATHANOR_CHECK_DATA(shard.instances <= instances, "{}: {} has instances of two parts; {}", name, shard.file,
                       kDamagedDataRemedy);
    instances -= shard.instances;
    if (!part.checksums) {
      next.emplace_back();
      continue;
    }
    const auto& [file, hash, block_rows] = *part.checksums;
    next.push_back(ShardBlocks{file, num_blocks, block_rows, 0});
    num_blocks += count_blocks(shard.instances, block_rows);
  }
}

}  // namespace

int64_t rows_per_block(int64_t row_bytes) { return count_blocks(kLeastBlockBytes, row_bytes); }

int64_t count_blocks(int64_t rows, int64_t block_rows) { return (rows + block_rows - 1) / block_rows; }

void BlockHasher::update(const std::byte* data, size_t num_bytes) {
  while (num_bytes > 0) {
    const auto take = std::min(num_bytes, static_cast<size_t>(block_bytes_ - in_block_));
    hasher_.update(data, take);
    data += take;
    num_bytes -= take;
    in_block_ += static_cast<int64_t>(take);
    if (in_block_ < block_bytes_) continue;
    blocks_.push_back(hasher_.words());
    hasher_.reset();
    in_block_ = 0;
  }
}

std::vector<HashWords> BlockHasher::finish() {
  if (in_block_ > 0) blocks_.push_back(hasher_.words());
  return std::move(blocks_);
}

std::string checksum_file_bytes(const std::vector<HashWords>& blocks) {
  auto bytes = npy_header(sizeof(uint32_t), static_cast<int64_t>(blocks.size()), std::tuple_size_v<HashWords>);
  const size_t first = bytes.size(), num_bytes = blocks.size() * sizeof(HashWords);
  bytes.resize(first + num_bytes);
  std::memcpy(bytes.data() + first, blocks.data(), num_bytes);
  return bytes;
}

FolderBlocks find_blocks(const DataManifest& manifest, const std::string& name) {
  FolderBlocks found;
  std::set<std::string> known;
  for (const auto& part : manifest.parts) {
    int64_t num_blocks = 0;
    for (const auto& [split, entry] : manifest.splits) {
      const auto instances = part.instances.find(split);
      if (instances != part.instances.end())
        add_files_of_part(entry, instances->second, part, num_blocks, found.shards[split], name);
    }
    found.of_parts.push_back(num_blocks);
    if (!part.checksums) continue;
    const auto& file = part.checksums->file;
    ATHANOR_CHECK_DATA(known.insert(file).second, "{}: two parts have the checksums {}; {}", name, file,
                       kDamagedDataRemedy);
    for (auto& [split, shards] : found.shards) {
      for (auto& shard : shards)
        if (shard && shard->file == file) shard->file_blocks = num_blocks;
    }
  }
  for (const auto& [split, entry] : manifest.splits) found.shards[split].resize(entry.files.size());  // empty shards
  return found;
}

std::vector<std::byte> read_block(const NpyMatrix& shard, const NpyMatrix& checksums, const ShardBlocks& blocks,
                                  int64_t block) {
  const int64_t first = block * blocks.block_rows, count = std::min(blocks.block_rows, shard.num_rows() - first);
  std::vector<std::byte> bytes(static_cast<size_t>(count * shard.num_cols() * shard.header().item_bytes));
  shard.read_rows(first, count, bytes.data());
  HashWords expected;
  checksums.read_row(blocks.first_block + block, reinterpret_cast<std::byte*>(expected.data()));
  const auto actual = hash_hex(bytes.data(), bytes.size());
  ATHANOR_CHECK_DATA(actual == hash_text(expected),
                     "{}: rows {} to {} are damaged: their checksum is {}, {} has {}; {}", shard.file().path(), first,
                     first + count - 1, actual, checksums.file().path(), hash_text(expected), kDamagedDataRemedy);
  return bytes;
}

}  // namespace athanor::inline dataset

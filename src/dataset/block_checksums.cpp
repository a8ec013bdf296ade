#include "dataset/block_checksums.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/error.h"
#include "dataset/npy.h"

namespace athanor {
namespace {

constexpr int64_t kLeastBlockBytes = int64_t{1} << 20;

using FileBlocks = std::vector<std::optional<ShardBlocks>>;  // one for each file of a split

// Adds the files that hold the part's `instances` of a split, from file `next.size()` of the split on.
void add_files_of_part(const SplitEntry& split, int64_t instances, const PartEntry& part, int64_t& num_blocks,
                       FileBlocks& next, const std::string& name) {
  while (instances > 0) {
    const auto& shard = split.files.at(next.size());
    ATHANOR_CHECK_DATA(shard.instances <= instances, "{}: {} has instances of two parts; prepare the data again", name,
                       shard.file);
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

std::vector<std::optional<ShardBlocks>> find_blocks(const DataManifest& manifest, const std::string& split,
                                                    const std::string& name) {
  std::map<std::string, FileBlocks> found;
  for (const auto& part : manifest.parts) {
    int64_t num_blocks = 0;
    for (const auto& [each, entry] : manifest.splits) {
      const auto instances = part.instances.find(each);
      if (instances != part.instances.end())
        add_files_of_part(entry, instances->second, part, num_blocks, found[each], name);
    }
    for (auto& [each, files] : found) {
      for (auto& file : files)
        if (file && part.checksums && file->file == part.checksums->file) file->file_blocks = num_blocks;
    }
  }
  auto files = std::move(found[split]);
  files.resize(manifest.splits.at(split).files.size());  // empty shards at the end
  return files;
}

}  // namespace athanor

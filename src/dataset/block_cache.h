#pragma once
// Keeps the blocks of shards that were read last, and remembers which blocks were verified: rows that are read in order
// cost one read for each block, and each block is compared with its checksum once.

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace athanor::inline dataset {

/// Any number of threads may use one object concurrently.
class BlockCache {
 public:
  using Bytes = std::shared_ptr<const std::vector<std::byte>>;

  /// @param most_bytes  of all blocks that are kept together; the block that was added last is always kept.
  explicit BlockCache(size_t most_bytes = size_t{32} << 20) : most_bytes_(most_bytes) {}

  struct Found {
    Bytes bytes;            ///< null if it is not kept
    bool verified = false;  ///< true if it was added once
  };
  /// @param shard  path of the shard.
  /// @param block  number of the block in the shard.
  Found find(const std::string& shard, int64_t block);

  /// Adds a verified block.
  void add(const std::string& shard, int64_t block, Bytes bytes);

 private:
  using Key = std::pair<std::string, int64_t>;
  struct Entry {
    Key key;
    Bytes bytes;
  };

  const size_t most_bytes_;
  std::mutex mutex_;  // guards all members below
  size_t num_bytes_ = 0;
  std::list<Entry> newest_first_;
  std::map<Key, std::list<Entry>::iterator> kept_;
  std::map<std::string, std::vector<bool>> verified_;  // by shard, and number of the block
};

}  // namespace athanor::inline dataset

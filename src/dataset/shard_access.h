#pragma once
// What the datasets of a process share to read shards.

#include "dataset/block_cache.h"
#include "dataset/open_shards.h"

namespace athanor::inline dataset {

struct ShardAccess {
  explicit ShardAccess(bool verifies = true) : verify_blocks(verifies) {}

  const bool verify_blocks;  ///< compare a block with its checksum when the first of its rows is read
  OpenShards open;
  BlockCache blocks;
};

}  // namespace athanor::inline dataset

#pragma once
// A token stream cut into instances and written as shards in a random order: the second and third step of preparing.

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/random.h"
#include "data/manifest.h"
#include "data/token_stream.h"

namespace athanor {

struct ShardOptions {
  int64_t seq_len = 0;
  int item_bytes = 2;
  uint64_t shard_bytes = 0;  ///< no shard is larger, unless one instance is
  int num_threads = 1;
};

/// Writes shards "<split>-00000.npy" ... into `folder`. Their rows, one after another, are the instances
/// order(first), ..., order(first + count - 1); instance i is tokens [i * seq_len, (i + 1) * seq_len) of the stream.
/// @throws IoError.
SplitEntry write_shards(const TokenStream& stream, const Permutation& order, int64_t first, int64_t count,
                        const std::filesystem::path& folder, const std::string& split, const ShardOptions& options);

}  // namespace athanor

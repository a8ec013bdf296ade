#pragma once
// Instances of a token stream into shards, in a random order: the second and third step of preparing. The disk is read
// and written from beginning to end only, and memory stays within a bound.
//
// The rows of all shards, one after another, are cut into buckets that fit into memory. If there are but a few, the
// stream is read once for each and its rows are put into their places. If there are many, the stream is read once and
// each instance is appended to the file of its bucket (scattering), as many buckets at a time as there is memory for
// buffers of a decent size; then each bucket is read, put into order and written.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/random.h"
#include "data/prepare/prepare_journal.h"
#include "data/prepare/shards.h"
#include "data/prepare/token_stream.h"

namespace athanor {

struct GatherOptions {
  ShardForm form;
  std::filesystem::path buckets;  ///< where bucket files may lie
  std::filesystem::path shards;   ///< the folder to write
  std::filesystem::path moved;    ///< where an earlier run may have moved finished shards to; may be empty
  uint64_t memory_bytes = 0;
  int num_threads = 1;
  std::function<void()> check_stop;  ///< called now and then; may throw
};

/// How many buckets, and how many of them are scattered at once.
struct GatherPlan {
  int64_t num_rows = 0, rows_per_bucket = 0, num_buckets = 0;
  int64_t buckets_per_pass = 0;  ///< 0: no bucket files, the stream is read for each bucket
  uint64_t buffer_bytes = 0;     ///< of each bucket while scattering
  int64_t num_passes() const;
};

/// @throws ConfigError with the number that is needed if not even a few instances fit.
GatherPlan plan_gather(int64_t num_rows, int64_t row_bytes, uint64_t memory_bytes, int num_threads);

/// Row r of `places` together is instance order(r). What the journal knows as done is not done again. The spill is
/// emptied as soon as the bucket files hold all of it.
/// @return the hash of each shard.
/// @throws IoError, ConfigError.
std::map<std::string, std::string> gather(TokenStream& stream, const Permutation& order,
                                          const std::vector<ShardPlace>& places, const GatherOptions& options,
                                          PrepareJournal& journal);

}  // namespace athanor

#pragma once
// Writes the instances of a token stream into shards in a random order: the second and third step of preparing. The
// disk is read and written sequentially, and memory stays within a bound.
//
// The rows of all shards, one after another, are divided into buckets that fit into memory. If there are only a few
// buckets, the stream is read once for each, and the rows of that bucket are put into their places. If there are many,
// the work is done in passes: each pass takes as many buckets as there is memory for write buffers of a decent size. It
// reads the stream once and appends each instance of these buckets to the file of its bucket (scattering); then each
// bucket is read, put into order and written.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/random.h"
#include "prepare/prepare_journal.h"
#include "prepare/shards.h"
#include "prepare/token_stream.h"

namespace athanor::inline preparation {

struct GatherOptions {
  ShardForm form;
  std::filesystem::path buckets;  ///< folder for bucket files
  std::filesystem::path shards;   ///< folder to write
  std::filesystem::path moved;    ///< folder to which an earlier call may have moved finished shards; may be empty
  uint64_t memory_bytes = 0;
  int num_threads = 1;
  /// Called now and then, also by several threads at once; what it throws ends gather.
  std::function<void()> check_stop;
};

/// The number of buckets, and how many of them are scattered in one pass.
struct GatherPlan {
  int64_t num_rows = 0, rows_per_bucket = 0, num_buckets = 0;
  int64_t buckets_per_pass = 0;  ///< 0: no bucket files, the stream is read for each bucket
  uint64_t buffer_bytes = 0;     ///< size of each bucket's buffer while scattering
  int64_t num_passes() const;
};

/// Chooses the buckets for `memory_bytes`.
/// @throws ConfigError with the number of bytes that is needed if not even a few instances fit.
GatherPlan plan_gather(int64_t num_rows, int64_t row_bytes, uint64_t memory_bytes, int num_threads);

/// Writes instance order(r) to row r of all `places` together. Work that the journal has as finished is not repeated.
/// The spill of `stream` is emptied as soon as the bucket files hold all of it.
/// @param places  all shards; together they have rows 0 to order.size() − 1, in order.
/// @return the finished shards, by file name.
/// @throws IoError, ConfigError.
std::map<std::string, FinishedShard> gather(TokenStream& stream, const Permutation& order,
                                            const std::vector<ShardPlace>& places, const GatherOptions& options,
                                            PrepareJournal& journal);

}  // namespace athanor::inline preparation

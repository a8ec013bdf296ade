#include "data/shards.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "data/npy.h"

namespace athanor {
namespace {

constexpr int64_t kWriteBytes = int64_t{1} << 20;

// Rows [begin, begin + shard.instances) of `order` as one file; fills in its hash.
void write_shard(const TokenStream& stream, const Permutation& order, int64_t begin,
                 const std::filesystem::path& folder, const ShardOptions& options, ShardEntry& shard) {
  AtomicFile file(folder / shard.file);
  Hasher hasher;
  const auto put = [&](const void* data, size_t num_bytes) {
    file.write(data, num_bytes);
    hasher.update(data, num_bytes);
  };
  const auto header = npy_header(options.item_bytes, shard.instances, options.seq_len);
  put(header.data(), header.size());
  const int64_t row_bytes = options.seq_len * options.item_bytes;
  const int64_t rows_at_once = std::max<int64_t>(1, kWriteBytes / row_bytes);
  std::vector<std::byte> rows(static_cast<size_t>(std::min(rows_at_once, shard.instances) * row_bytes));
  for (int64_t row = 0; row < shard.instances; row += rows_at_once) {
    const int64_t num_rows = std::min(rows_at_once, shard.instances - row);
    for (int64_t i = 0; i < num_rows; ++i) {
      const auto instance = static_cast<int64_t>(order(static_cast<uint64_t>(begin + row + i)));
      stream.copy(instance * options.seq_len, options.seq_len, rows.data() + i * row_bytes);
    }
    put(rows.data(), static_cast<size_t>(num_rows * row_bytes));
  }
  file.commit();
  shard.hash = hasher.hex();
}

// Calls work(0) ... work(count - 1), by several threads; throws the first error that came.
template <class Work>
void parallel_for(int num_threads, int64_t count, Work work) {
  std::atomic<int64_t> next = 0;
  std::mutex mutex;
  std::exception_ptr error;
  const auto run = [&] {
    try {
      for (int64_t i = next++; i < count; i = next++) work(i);
    } catch (...) {
      next = count;
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (int64_t t = 1; t < std::min<int64_t>(num_threads, count); ++t) threads.emplace_back(run);
  run();
  for (auto& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace

SplitEntry write_shards(const TokenStream& stream, const Permutation& order, int64_t first, int64_t count,
                        const std::filesystem::path& folder, const std::string& split, const ShardOptions& options) {
  const auto row_bytes = static_cast<uint64_t>(options.seq_len) * static_cast<uint64_t>(options.item_bytes);
  const uint64_t header_bytes = npy_header(options.item_bytes, count, options.seq_len).size();
  const uint64_t for_rows = options.shard_bytes - std::min(options.shard_bytes, header_bytes);
  const auto rows_in_shard = static_cast<int64_t>(std::max<uint64_t>(1, for_rows / row_bytes));
  SplitEntry entry{count, count * options.seq_len, {}};
  for (int64_t row = 0; row < count; row += rows_in_shard) {
    entry.files.push_back(
        {fmt::format("{}-{:05}.npy", split, entry.files.size()), std::min(rows_in_shard, count - row), ""});
  }
  parallel_for(options.num_threads, static_cast<int64_t>(entry.files.size()), [&](int64_t i) {
    write_shard(stream, order, first + i * rows_in_shard, folder, options, entry.files[static_cast<size_t>(i)]);
  });
  return entry;
}

}  // namespace athanor

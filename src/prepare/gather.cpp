#include "prepare/gather.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "base/console.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/file_moves.h"
#include "base/parallel_for.h"
#include "base/text.h"
#include "dataset/npy.h"
#include "prepare/bucket_files.h"

namespace athanor::inline preparation {
namespace fs = std::filesystem;

namespace {

constexpr int64_t kBlockBytes = int64_t{1} << 20;        // size of a read or write
constexpr uint64_t kMinBufferBytes = uint64_t{1} << 16;  // buffer of a bucket: smaller writes would not be sequential
constexpr uint64_t kMaxBufferBytes = uint64_t{1} << 22;  // larger ones gain nothing
constexpr int64_t kMaxDirectBuckets = 3;  // as scattering reads and writes everything once more, it costs as much as
                                          // this many passes
constexpr uint64_t kRowNumberBytes = sizeof(int64_t);

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

uint64_t least_buffer(int64_t row_bytes) {
  return std::max(kMinBufferBytes, kRowNumberBytes + static_cast<uint64_t>(row_bytes));
}

// Returns the memory for reading and writing in addition to the buckets.
uint64_t block_buffers(int64_t row_bytes, int num_threads) {
  return static_cast<uint64_t>(num_threads + 1) * static_cast<uint64_t>(std::max(row_bytes, kBlockBytes));
}

// Returns the buffer of each bucket if `buckets_per_pass` are scattered at once, or nothing if they do not fit.
std::optional<uint64_t> buffer_bytes(uint64_t memory_bytes, int64_t buckets_per_pass, int64_t row_bytes,
                                     int num_threads) {
  const uint64_t least = least_buffer(row_bytes);
  const uint64_t each =
      (memory_bytes - block_buffers(row_bytes, num_threads)) / static_cast<uint64_t>(buckets_per_pass);
  if (each < least) return std::nullopt;
  return std::min(each, std::max(least, kMaxBufferBytes));
}

class Gathering {
 public:
  Gathering(TokenStream& stream, const Permutation& order, const std::vector<ShardPlace>& places,
            const GatherOptions& options, const GatherPlan& plan, PrepareJournal& journal)
      : stream_(stream), order_(order), places_(places), options_(options), plan_(plan), journal_(journal),
        row_bytes_(options.form.row_bytes()),
        files_(options.buckets, row_bytes_,
               std::max(plan.buffer_bytes, kRowNumberBytes + static_cast<uint64_t>(row_bytes_))),
        finished_(places.size()), writers_(places.size()) {
    for (size_t i = 0; i < places.size(); ++i) finished_[i] = finished_before(places[i]);
  }

  std::map<std::string, FinishedShard> run() {
    for (int64_t pass = 0; pass < plan_.num_passes(); ++pass) {
      const int64_t per_pass = plan_.buckets_per_pass > 0 ? plan_.buckets_per_pass : plan_.num_buckets;
      const int64_t begin = pass * per_pass, end = std::min(plan_.num_buckets, begin + per_pass);
      if (plan_.buckets_per_pass > 0) scatter(pass, begin, end);
      ProgressBar progress("writing shards", bytes_of(rows_of(begin, end)), "B");
      for (int64_t bucket = begin; bucket < end; ++bucket) write_bucket(bucket, progress);
      progress.finish();
    }
    std::map<std::string, FinishedShard> shards;
    for (size_t i = 0; i < places_.size(); ++i) shards[places_[i].file] = std::move(finished_[i]);
    return shards;
  }

 private:
  struct Rows {
    int64_t begin, end;
  };
  Rows rows_of(int64_t begin_bucket, int64_t end_bucket) const {
    return {begin_bucket * plan_.rows_per_bucket, std::min(plan_.num_rows, end_bucket * plan_.rows_per_bucket)};
  }
  uint64_t bytes_of(Rows rows) const { return static_cast<uint64_t>((rows.end - rows.begin) * row_bytes_); }

  // Returns a shard that an earlier run finished; without a hash if none did.
  FinishedShard finished_before(const ShardPlace& place) const {
    const auto& shards = journal_.gathering().shards;
    const auto found = shards.find(place.file);
    if (found == shards.end()) return {};
    const uint64_t bytes = npy_header(options_.form.item_bytes, place.num_rows, options_.form.seq_len).size() +
                           static_cast<uint64_t>(place.num_rows * row_bytes_);
    for (const auto& folder : {options_.shards, options_.moved}) {
      std::error_code error;
      if (folder.empty() || fs::file_size(folder / place.file, error) != bytes || error) continue;
      auto shard = found->second;
      if (shard.blocks.empty()) shard.blocks = hash_blocks(folder / place.file, options_.form);  // an older journal
      return shard;
    }
    return {};
  }

  bool all_done(Rows rows) const {
    for (size_t i = 0; i < places_.size(); ++i) {
      if (overlaps(places_[i], rows) && finished_[i].hash.empty()) return false;
    }
    return true;
  }
  static bool overlaps(const ShardPlace& place, Rows rows) {
    return place.first_row < rows.end && rows.begin < place.first_row + place.num_rows;
  }

  // Calls visit(row, bytes) for each instance of the stream, in blocks that up to `num_threads` threads read.
  template <class Visit>
  void scan(int num_threads, Visit visit) const {
    const int64_t at_once = std::max<int64_t>(1, kBlockBytes / row_bytes_), seq_len = options_.form.seq_len;
    parallel_for(num_threads, ceil_div(plan_.num_rows, at_once), [&](int64_t block) {
      options_.check_stop();
      const int64_t first = block * at_once, count = std::min(at_once, plan_.num_rows - first);
      std::vector<std::byte> bytes(static_cast<size_t>(count * row_bytes_));
      stream_.copy(first * seq_len, count * seq_len, bytes.data());
      for (int64_t i = 0; i < count; ++i) {
        visit(static_cast<int64_t>(order_.inverse(static_cast<uint64_t>(first + i))), bytes.data() + i * row_bytes_);
      }
    });
  }

  void scatter(int64_t pass, int64_t begin, int64_t end) {
    const Rows rows = rows_of(begin, end);
    const bool last = pass == plan_.num_passes() - 1;
    if (!journal_.gathering().scattered.contains(pass) && !all_done(rows)) {
      ProgressBar progress(
          plan_.num_passes() == 1 ? "shuffling" : fmt::format("shuffling, {} of {}", pass + 1, plan_.num_passes()),
          bytes_of({0, plan_.num_rows}), "B");
      files_.begin(begin, end - begin);
      scan(1, [&](int64_t row, const std::byte* bytes) {
        progress.add(static_cast<uint64_t>(row_bytes_));
        if (row >= rows.begin && row < rows.end) files_.append(row / plan_.rows_per_bucket, row, bytes);
      });
      files_.finish();
      progress.finish();
      journal_.add_scattered(pass);
    }
    fault_point("prepare.scattered");
    if (last) stream_.remove();
  }

  void write_bucket(int64_t bucket, ProgressBar& progress) {
    const Rows rows = rows_of(bucket, bucket + 1);
    if (!all_done(rows)) {
      const std::unique_ptr<std::byte[]> memory(new std::byte[bytes_of(rows)]);
      fill(bucket, rows, memory.get());
      write(rows, memory.get(), progress);
    } else {
      progress.skip(bytes_of(rows));
    }
    remove_what_is_done(bucket);
  }

  void fill(int64_t bucket, Rows rows, std::byte* memory) const {
    const auto put = [&](int64_t row, const std::byte* bytes) {
      if (row < rows.begin || row >= rows.end) return;
      std::memcpy(memory + (row - rows.begin) * row_bytes_, bytes, static_cast<size_t>(row_bytes_));
    };
    if (plan_.buckets_per_pass == 0) {
      scan(options_.num_threads, put);
      return;
    }
    const int64_t num_rows = files_.read(bucket, put);
    if (num_rows != rows.end - rows.begin) {
      throw IoError(
          fmt::format("{}: bucket {} has {} rows, not {}: it was changed; throw the unfinished work away with "
                      "--restart",
                      options_.buckets.string(), bucket, num_rows, rows.end - rows.begin),
          EIO);
    }
  }

  // Writes the rows of the bucket that belong to each shard.
  void write(Rows rows, const std::byte* memory, ProgressBar& progress) {
    std::vector<size_t> shards;
    for (size_t i = 0; i < places_.size(); ++i) {
      if (overlaps(places_[i], rows) && finished_[i].hash.empty()) shards.push_back(i);
    }
    parallel_for(options_.num_threads, static_cast<int64_t>(shards.size()), [&](int64_t i) {
      const size_t shard = shards[static_cast<size_t>(i)];
      const auto& place = places_[shard];
      auto& writer = writers_[shard];
      if (!writer) writer = std::make_unique<ShardWriter>(options_.shards, place, options_.form);
      const int64_t first = std::max(rows.begin, place.first_row),
                    end = std::min(rows.end, place.first_row + place.num_rows);
      const std::byte* at = memory + (first - rows.begin) * row_bytes_;
      for (int64_t left = (end - first) * row_bytes_; left > 0;) {
        options_.check_stop();
        const int64_t take = std::min(left, kBlockBytes);
        writer->write(at, static_cast<size_t>(take));
        progress.add(static_cast<uint64_t>(take));
        at += take;
        left -= take;
      }
      if (end < place.first_row + place.num_rows) return;
      finished_[shard] = writer->commit();
      writer.reset();
      journal_.add_shard(place.file, finished_[shard]);
      fault_point("prepare.shard");
    });
  }

  // A bucket's file stays until no shard needs it: a half-written shard is begun again after a kill.
  void remove_what_is_done(int64_t bucket) {
    if (plan_.buckets_per_pass == 0) return;
    while (first_kept_ <= bucket && all_done(rows_of(first_kept_, first_kept_ + 1))) files_.remove(first_kept_++);
  }

  TokenStream& stream_;
  const Permutation& order_;
  const std::vector<ShardPlace>& places_;
  const GatherOptions& options_;
  const GatherPlan plan_;
  PrepareJournal& journal_;
  const int64_t row_bytes_;
  BucketFiles files_;
  std::vector<FinishedShard> finished_;  // by shard; without a hash while it is not finished
  std::vector<std::unique_ptr<ShardWriter>> writers_;
  int64_t first_kept_ = 0;
};

// Returns the earlier run's plan if its bucket files can be used, else a new plan.
GatherPlan choose_plan(const TokenStream& stream, int64_t num_rows, const GatherOptions& options,
                       PrepareJournal& journal) {
  const int64_t row_bytes = options.form.row_bytes();
  auto plan = plan_gather(num_rows, row_bytes, options.memory_bytes, options.num_threads);
  const auto& before = journal.gathering();
  const std::string digest = stream.digest();
  if (before.stream == digest && !before.scattered.empty()) {
    const auto buffers = buffer_bytes(options.memory_bytes, before.buckets_per_pass, row_bytes, options.num_threads);
    const bool fits = before.rows_per_bucket <= plan.rows_per_bucket && buffers;
    ATHANOR_CHECK(fits || stream.has_spill(),
                  "the unfinished run put its instances into buckets of {}; give --memory {} more for one of them",
                  format_bytes(static_cast<double>(before.rows_per_bucket * row_bytes)),
                  format_bytes(static_cast<double>((before.rows_per_bucket - plan.rows_per_bucket) * row_bytes)));
    if (fits) {
      plan.rows_per_bucket = before.rows_per_bucket;
      plan.buckets_per_pass = before.buckets_per_pass;
      plan.num_buckets = ceil_div(num_rows, plan.rows_per_bucket);
      plan.buffer_bytes = *buffers;
      return plan;
    }
  }
  try_remove_tree(options.buckets);
  journal.begin_gather(digest, plan.rows_per_bucket, plan.buckets_per_pass);
  return plan;
}

}  // namespace

int64_t GatherPlan::num_passes() const { return buckets_per_pass == 0 ? 1 : ceil_div(num_buckets, buckets_per_pass); }

GatherPlan plan_gather(int64_t num_rows, int64_t row_bytes, uint64_t memory_bytes, int num_threads) {
  const auto row = static_cast<uint64_t>(row_bytes);
  const uint64_t buffers = block_buffers(row_bytes, num_threads), least = least_buffer(row_bytes);
  ATHANOR_CHECK(memory_bytes >= buffers + least,
                "--memory leaves {} for shuffling instances of {}; give {} more, or fewer --threads",
                format_bytes(static_cast<double>(memory_bytes)), format_bytes(static_cast<double>(row)),
                format_bytes(static_cast<double>(buffers + least - memory_bytes)));
  const uint64_t memory = memory_bytes - buffers;
  GatherPlan plan;
  plan.num_rows = num_rows;
  plan.rows_per_bucket = std::max<int64_t>(1, static_cast<int64_t>(memory / row));
  plan.num_buckets = ceil_div(num_rows, plan.rows_per_bucket);
  if (plan.num_buckets <= kMaxDirectBuckets) return plan;
  plan.buckets_per_pass = std::min(plan.num_buckets, static_cast<int64_t>(memory / least));
  plan.buffer_bytes = *buffer_bytes(memory_bytes, plan.buckets_per_pass, row_bytes, num_threads);
  return plan;
}

std::map<std::string, FinishedShard> gather(TokenStream& stream, const Permutation& order,
                                            const std::vector<ShardPlace>& places, const GatherOptions& options,
                                            PrepareJournal& journal) {
  const auto plan = choose_plan(stream, static_cast<int64_t>(order.size()), options, journal);
  return Gathering(stream, order, places, options, plan, journal).run();
}

}  // namespace athanor::inline preparation
